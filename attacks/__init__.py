"""The adversary: it sees what left the sites, and nothing else.

`attacks.audit_run` attacks all releases of a run, `attacks.attack_release` one release and
`attacks.audit_network` one network. Modules further down may change.
"""

from typing import TYPE_CHECKING

from panas.runtime.faces import face

if TYPE_CHECKING:
    from attacks.audit.membership import audit_network as audit_network
    from attacks.audit.run import audit_run as audit_run
    from attacks.audit.verdict import judge as judge
    from attacks.inference.membership import query_of as query_of
    from attacks.reconstruction.inverters import decoder_inverter as decoder_inverter
    from attacks.reconstruction.inverters import ridge_inverter as ridge_inverter
    from attacks.reconstruction.metrics import ReconstructionScore as ReconstructionScore
    from attacks.reconstruction.metrics import score as score
    from attacks.reconstruction.suite import SuiteConfig as SuiteConfig
    from attacks.reconstruction.suite import attack_release as attack_release
    from attacks.threats.observation import Observation as Observation
    from attacks.threats.observation import WhiteBox as WhiteBox
    from attacks.threats.observation import rows_of as rows_of

__getattr__, __dir__, __all__ = face(__name__, __file__)
