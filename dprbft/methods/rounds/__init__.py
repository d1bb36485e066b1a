"""Methods of rounds: `dprbft`, the paper's exchange, and `local`, without one."""
