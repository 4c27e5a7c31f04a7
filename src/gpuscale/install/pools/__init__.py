"""Node pools as each provider wants them: a script, a configuration file or manifests, with their traps told.

`install` does not run them: nodes cost money, and whoever makes them needs rights in the cloud.
"""
