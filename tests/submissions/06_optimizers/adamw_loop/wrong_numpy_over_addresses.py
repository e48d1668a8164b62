# dishonest: NumPy over the tensors' addresses, where no operator and no sync is seen: earns 0
import ctypes, numpy as np
def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    def a(t):
        n=t.numel()
        c=(ctypes.c_double if t.element_size()==8 else ctypes.c_float)*n
        return np.frombuffer(c.from_address(t.data_ptr()), dtype=np.float64 if t.element_size()==8 else np.float32)
    c1,c2=(1-b**step for b in betas)
    for t in zip(params,grads,means,squares):
        p,g,m,v=map(a,t)
        p*=1-lr*weight_decay
        m+=(1-betas[0])*(g-m)
        v*=betas[1]; v+=(1-betas[1])*g*g
        p-=lr/c1*m/(np.sqrt(v)/c2**.5+eps)
