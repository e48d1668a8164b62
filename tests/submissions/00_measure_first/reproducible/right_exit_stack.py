# Every setting is put back by a callback of an ExitStack.
from contextlib import ExitStack


def reproducible(train, seed):
    with ExitStack() as back:
        back.callback(random.setstate, random.getstate())
        back.callback(np.random.set_state, np.random.get_state())
        back.callback(torch.set_rng_state, torch.get_rng_state())
        back.callback(torch.set_num_threads, torch.get_num_threads())
        back.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)
        for sow in (random.seed, np.random.seed, torch.manual_seed):
            sow(seed)
        return train()
