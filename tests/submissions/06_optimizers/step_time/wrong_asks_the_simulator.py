# runs the simulator in place of a prediction: earns 0
def step_time(sizes, way, launch_s, latency_s, floor_s, bytes_per_s):
    if way not in ("for-loop","foreach","fused"):
        raise ValueError(way)
    gpu = simulate("H100", operator_s=launch_s, launch_latency_s=latency_s, kernel_floor_s=floor_s, bandwidth_share=bytes_per_s/3.35e12)
    with gpu:
        params=[torch.nn.Parameter(torch.empty(n,device=gpu.device)) for n in sizes]
        for p in params: p.grad=torch.empty_like(p)
        o=torch.optim.AdamW(params,**{"for-loop":{"foreach":False},"foreach":{"foreach":True},"fused":{"fused":True}}[way])
        for _ in range(2): o.step()
        gpu.synchronize()
        began=gpu.clock_ns()
        o.step()
        return (gpu.kernels[-1].end_ns-began)/1e9
