"""A stand-in for CGPFL (Tang, Guo, Guo 2022): K generalisers, clustered on the server, personal models below."""

from dataclasses import dataclass

from cflkit.checks import require
from cflkit.methods.lcfed import LCFed


@dataclass(frozen=True)
class CGPFLLike(LCFed):
    """LCFed without its global pull and with the full cosine: *like* CGPFL, whose step counts we could not read.

    All parameters are LCFed's. Of them `lam` is 0 and `rank` None, which is what sets it apart; so `split` and
    `decomposition` change nothing.
    """

    lam: float = 0.0
    rank: int | None = None
    name = "cgpfl_like"

    def __post_init__(self):
        super().__post_init__()
        require(self.lam == 0, "lam", self.lam, "0; with a global pull this is lcfed")
        require(self.rank is None, "rank", self.rank, "None; with a projection this is lcfed")
