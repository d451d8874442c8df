"""What `CRF.fit` does between a user's sequences and a trained model: what is asked for is checked, the sequences
become numbers, the family is trained on them. The pipeline has its own way from files to a model (`tasks/training`).
"""
