"""Write what the library takes for parameters that are left out, so that the ledger need not import it.

``.venv/bin/python book/measure/defaults.py``, after a default has changed; a test says when that is.
"""

import json
from dataclasses import MISSING

from cflkit.checks import parameters
from cflkit.data.builders import BUILDERS
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import METHODS
from cflkit.workbook import places
from cflkit.workbook.runs import plans, protocols


def found() -> dict:
    """Defaults by name, as JSON has them: of methods, builders, local training and a run's settings."""
    def of(kind: type) -> dict:
        return {name: default for name, (default, _) in parameters(kind).items() if default is not MISSING}

    every = {"method": {name: of(kind) for name, kind in sorted(METHODS.items())},
             "federation": {name: of(kind) for name, kind in sorted(BUILDERS.items())},
             "local": of(SGD), "setting": of(plans.Setting), "scored": Simulation.personal_clients}  # fmt: skip
    return json.loads(json.dumps(every))


if __name__ == "__main__":
    places.write(protocols.DEFAULTS, json.dumps(found(), indent=1) + "\n")
