"""The main file of a Spark application: `spark-submit relay-pipeline.py schedule SOURCE --topic TOPIC`.

spark-submit starts a file, not a module, so this file takes the arguments of `relay pipeline`. pip installs
it beside the command `relay`.
"""

import sys

NO_RELAY = (
    "relay-pipeline.py: the driver's Python, {python}, has no Relay: install it there with pip install"
    " 'relay-timers[pipeline]', or name a Python that has it by PYSPARK_DRIVER_PYTHON"
)

if __name__ == "__main__":
    try:
        from relay.cli import main
    except ModuleNotFoundError:
        sys.exit(NO_RELAY.format(python=sys.executable))
    sys.argv[1:1] = ["pipeline"]
    main()
