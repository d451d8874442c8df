"""How good a model is: the measure of the task, slices, second looks, single labels, cases, news since the champion.

Shared by evaluation, report, promotion and dashboard, so that they never disagree.
"""
