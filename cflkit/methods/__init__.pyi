# What this package makes of its files, for editors and type checkers; tests/test_layers.py holds it to that.
from cflkit.methods.base import Method as Method
from cflkit.methods.cfl import CFL as CFL
from cflkit.methods.cgpfl import CGPFLLike as CGPFLLike
from cflkit.methods.ditto import Ditto as Ditto
from cflkit.methods.fedavg import FedAvg as FedAvg
from cflkit.methods.fedavg import FedProx as FedProx
from cflkit.methods.fedavg import FedSGD as FedSGD
from cflkit.methods.fedcg import FedCG as FedCG
from cflkit.methods.feddane import FedDANE as FedDANE
from cflkit.methods.feddist import FedDist as FedDist
from cflkit.methods.feddrift import FedDrift as FedDrift
from cflkit.methods.fedem import FedEM as FedEM
from cflkit.methods.fedfomo import FedFomo as FedFomo
from cflkit.methods.fedgroup import FedGroup as FedGroup
from cflkit.methods.fedper import FedPer as FedPer
from cflkit.methods.fedrc import FedRC as FedRC
from cflkit.methods.fedsoft import FedSoft as FedSoft
from cflkit.methods.fesem import FeSEM as FeSEM
from cflkit.methods.flux import FLUX as FLUX
from cflkit.methods.ifca import IFCA as IFCA
from cflkit.methods.lcfed import LCFed as LCFed
from cflkit.methods.mdicfl import MDICFL as MDICFL
from cflkit.methods.pacfl import PACFL as PACFL
from cflkit.methods.reference import LocalOnly as LocalOnly
from cflkit.methods.reference import OracleClusters as OracleClusters
from cflkit.methods.robust import Robust as Robust
from cflkit.methods.scaffold import Scaffold as Scaffold
from cflkit.methods.stocfl import StoCFL as StoCFL

METHODS: dict[str, type[Method]]

def get(name: str, **parameters: object) -> Method: ...
