"""What the commands of a site's owner do, each file loaded when it is first needed."""

from typing import TYPE_CHECKING

from panas.runtime.faces import modules

if TYPE_CHECKING:
    from panas_cli.commands.sites import demo, deploy, live, node, site, status  # noqa: F401

__getattr__ = modules(__name__)
