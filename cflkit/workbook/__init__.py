"""What the book needs besides the library: protocols, records, verdicts, pages, figures, notebooks, the console."""
