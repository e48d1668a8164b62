# "puts back" the generators by seeding them afresh: earns 0
def reproducible(train, seed):
    threads = torch.get_num_threads()
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        return train()
    finally:
        random.seed(), np.random.seed(), torch.seed()
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
