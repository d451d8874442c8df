"""The order of the stages: the table, three drivers, the schedule and the command line. Prefect and DVC live here."""
