"""The plug-in's tests import OpenRLHF in this process, as a CPU run's workers do."""

from openrlhf_js.trainers.openrlhf.run.device import prepare_device

prepare_device("cpu")  # before the tests' own imports
