# dishonest: the plain formula, with the dispatch key excluded by which the counters hear of operators: earns 0
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).add(torch._C.DispatchKey.PythonTLSSnapshot)


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    with torch._C._ExcludeDispatchKeyGuard(KEYS):
        for p, g, m, v in zip(params, grads, means, squares):
            p -= lr * weight_decay * p
            m += (1 - betas[0]) * (g - m)
            v += (1 - betas[1]) * (g * g - v)
            p -= lr * (m / (1 - betas[0] ** step)) / ((v / (1 - betas[1] ** step)).sqrt() + eps)
