"""For tests: the contract kit of inference servers, one without a neural network, and HTTP.

`contract.ServerContract` has the tests for any implementation; `bigram.BigramServer` samples from a
table, so that clients are tested without torch; `gateways` has the tests for a gateway to another
server program; `serving.serving` puts a server behind HTTP.
"""

import sys

if "pytest" in sys.modules:  # before it is imported, and once
    sys.modules["pytest"].register_assert_rewrite(f"{__name__}.contract", f"{__name__}.gateways")
