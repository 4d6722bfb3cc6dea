from openrlhf_js.stats.clustered import *  # noqa: F403
from openrlhf_js.stats.clustered import Labels, add_up, checked, checked_weights, codes  # noqa: F401
