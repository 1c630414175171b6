"""The pieces of the benches: inputs, storage, jobs, peers, verification, rows, report. See ../run.py."""
