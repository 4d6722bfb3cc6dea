"""The James-Stein shrinkage baseline for OpenRLHF. `openrlhf_js.estimators` needs only torch."""

__version__ = "0.1.0"
