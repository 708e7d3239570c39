# What `cflkit.__getattr__` gives, for editors and type checkers; tests/test_layers.py holds it to that.
from cflkit import methods as methods
from cflkit import models as models
from cflkit.data import builders as builders
from cflkit.data import images as images
from cflkit.data.federation import Federation as Federation
from cflkit.engine import metrics as metrics
from cflkit.engine.history import History as History
from cflkit.engine.sgd import SGD as SGD
from cflkit.engine.simulation import Simulation as Simulation
from cflkit.engine.simulation import simulate as simulate
from cflkit.methods import CFL as CFL
from cflkit.methods import FLUX as FLUX
from cflkit.methods import IFCA as IFCA
from cflkit.methods import MDICFL as MDICFL
from cflkit.methods import PACFL as PACFL
from cflkit.methods import CGPFLLike as CGPFLLike
from cflkit.methods import Ditto as Ditto
from cflkit.methods import FedAvg as FedAvg
from cflkit.methods import FedCG as FedCG
from cflkit.methods import FedDANE as FedDANE
from cflkit.methods import FedDist as FedDist
from cflkit.methods import FedDrift as FedDrift
from cflkit.methods import FedEM as FedEM
from cflkit.methods import FedFomo as FedFomo
from cflkit.methods import FedGroup as FedGroup
from cflkit.methods import FedPer as FedPer
from cflkit.methods import FedProx as FedProx
from cflkit.methods import FedRC as FedRC
from cflkit.methods import FedSGD as FedSGD
from cflkit.methods import FedSoft as FedSoft
from cflkit.methods import FeSEM as FeSEM
from cflkit.methods import LCFed as LCFed
from cflkit.methods import LocalOnly as LocalOnly
from cflkit.methods import OracleClusters as OracleClusters
from cflkit.methods import Robust as Robust
from cflkit.methods import Scaffold as Scaffold
from cflkit.methods import StoCFL as StoCFL

federation = builders
__version__: str
