"""Prints docs/scenario.schema.json: `make reference` writes it."""

import json

from gpuscale.lab.sim.scenario.model import Scenario

if __name__ == "__main__":
    print(json.dumps(Scenario.model_json_schema(), indent=2, sort_keys=True))
