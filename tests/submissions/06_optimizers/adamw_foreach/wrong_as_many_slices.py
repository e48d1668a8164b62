# as many slices of equal length as the budget of operators allows, whatever lies in them: earns 2
def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    # lazy: as many equal slices as total / limit
    n=len(params)
    total=sum(p.nbytes for p in params)
    k=1 if temp_bytes is None else min(n,max(1,2*total//temp_bytes+1))
    c1,c2=(1-b**step for b in betas)
    def group(p,g,m,v):
        torch._foreach_mul_(p, 1 - lr * weight_decay)
        torch._foreach_lerp_(m, g, 1 - betas[0])
        torch._foreach_mul_(v, betas[1])
        torch._foreach_addcmul_(v, g, g, 1 - betas[1])
        roots = torch._foreach_sqrt(v)
        torch._foreach_div_(roots, math.sqrt(c2))
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(p, m, roots, -lr / c1)
    for j in range(k):
        s=slice(j*n//k,(j+1)*n//k)
        if params[s]: group(params[s],grads[s],means[s],squares[s])
