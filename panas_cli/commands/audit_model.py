"""`panas audit-model`: attacks on a network that was trained elsewhere."""

from attacks.audit.external_model import MEMBERSHIP, ModelAuditConfig
from attacks.audit.external_model import audit_model as attack
from attacks.audit.membership import PrivacyClaim
from attacks.audit.target import ExternalModel
from panas_cli.audit_output import show_model_audit
from panas_cli.commands.audit import fail
from panas_cli.options import ModelRequest
from panas_cli.printing import print_json
from panas_cli.progress import Display


def audit_model(request: ModelRequest) -> None:
    """Attack a network that was trained elsewhere: who was it trained on?"""
    model = ExternalModel(
        file=request.file,
        data=request.data,
        others=request.others,
        label=request.label,
        mean=request.mean,
        std=request.std,
        accuracy=request.accuracy,
        claim=PrivacyClaim(epsilon=request.epsilon, delta=request.delta),
    )
    config = ModelAuditConfig(
        shadows=request.shadows, outputs=request.outputs, workers=request.workers
    )
    with Display() as display:

        def report(text: str) -> None:
            if text == MEMBERSHIP:  # the first step: its files have been read
                display.stage("audit", 1 + request.outputs)
            display.report(text)

        found = attack(model, config, out=request.out, on_progress=report)
        if request.out is not None:
            display.say(f"audit.json and pictures: {request.out}")
    if request.json:
        print_json(found.to_json())
    else:
        show_model_audit(found)
    fail(request.fail_on, [found.verdict])
