"""What a Python user meets around the labeller, `engine.estimator`: inputs of all kinds made plain, the conventions of
scikit-learn, the line that tells of a training, and the model as a notebook shows it. Nothing here trains or labels.
"""
