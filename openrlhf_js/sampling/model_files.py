"""The old place of model files."""

from openrlhf_js.sampling.models import ModelFiles as ModelFiles
from openrlhf_js.sampling.models import model_files as model_files
