"""Mathematics: the last boxed or tagged answer, compared by value."""

if __name__ == "math":
    # Run from this folder, Python finds this file when it looks for its own `math` module. Load
    # that module instead.
    import os
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.realpath(__file__))
    spec = PathFinder.find_spec("math", [p for p in sys.path if os.path.realpath(p) != here])
    sys.modules["math"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["math"])
else:
    from answer_graders.rewards import reward_function

    TASK = "math"
    reward_func = reward_function(TASK)
