"""The old place of `versions`."""

from openrlhf_js.evaluation.passk.evaluate import versions as versions
