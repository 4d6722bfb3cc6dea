"""`openrlhf-js rm serve`, to be killed and back within a second, however slow its imports are.

`python reward_nursery.py FOLDER PORT` imports everything once. Each line on its standard input
makes it fork a child that serves the model on the port; the child's process id is printed. Nothing
is computed before the fork: PyTorch's pools of threads do not survive one.
"""

import os
import signal
import sys

from transformers.models.qwen2 import modeling_qwen2, tokenization_qwen2  # noqa: F401

from openrlhf_js.cli import rm
from openrlhf_js.reward_model import model, server  # noqa: F401  # what it imports late


def main() -> None:
    folder, port = sys.argv[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # standard output is the nursery's
            flags = ("--reward.model_name_or_path", folder, "--ds.param_dtype", "float32")
            os._exit(rm.main(["serve", *flags, "--port", port, "--device", "cpu"]))
        print(child, flush=True)


if __name__ == "__main__":
    main()
