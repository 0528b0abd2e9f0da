"""A Ray cluster on this machine: one for all tests, since it takes long to start."""

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

# A lost node is noticed after a second or two, not after fifteen.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_METRICS_COLLECTION": "1",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "2",
}
STORE = 80 * 2**20
HEAD: dict[str, Any] = {
    "num_cpus": 0,
    "object_store_memory": STORE,
    **{"include_dashboard": False, "include_log_monitor": False, "no_monitor": True},
    "dashboard_agent_listen_port": 0,  # any: another cluster may have the default one
}
"""It runs nothing: neither work nor, of Ray's own, what no test looks at."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A head that runs nothing and a node with the resource ``one``; this process is connected."""
    import ray
    from ray.cluster_utils import Cluster

    from ale_ray.cluster import NAMESPACE

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Cluster(initialize_head=True, head_node_args=HEAD)
        made.add_node(num_cpus=2, resources={"one": 100}, object_store_memory=STORE)
        ray.init(made.address, namespace=NAMESPACE, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()
