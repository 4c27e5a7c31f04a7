"""`gpuscale schema`: the JSON schema of scenario files."""

import json


def schema() -> None:
    """Print the JSON schema of scenario files, for editors to complete and check them.

    Example:  gpuscale schema > scenario.schema.json
    """
    from gpuscale.sim.scenario import Scenario

    print(json.dumps(Scenario.model_json_schema(), indent=2, sort_keys=True))
