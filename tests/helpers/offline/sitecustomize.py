"""First on PYTHONPATH, this keeps a process from the network; Python imports it when it starts."""

import no_network

no_network.forbid()
