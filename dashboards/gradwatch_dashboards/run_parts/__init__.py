"""The parts of a run's page: each has what it shows (`…_info`, pure) and how it is shown."""
