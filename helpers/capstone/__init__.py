"""The capstone: a training script that the learner has not met."""
