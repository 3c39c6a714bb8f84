#!/usr/bin/env python3
"""The step of peer_torch.py on several processes, by PyTorch DDP or FSDP over gloo: the peer of ranks in `make bench`.

    peer_ranks.py --wrap ddp --model gpt2 --batch 4 --seq 64 --ranks 2

--batch is that of all ranks together. Rank 0 starts the others and has each do a
step when it does one; a step takes as long as its slowest rank. The defaults are
the fastest settings found (README.md).
"""
import json
import os
import subprocess
import sys
import tempfile

import peer_torch

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}


def arguments():
    p = peer_torch.parser(__doc__.split("\n")[0])
    p.set_defaults(threads=1)
    p.add_argument("--wrap", choices=("ddp", "fsdp"), default="ddp", help="fsdp: fully_shard, of each layer and of the rest")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--outside", action="store_true", help="compile what is wrapped, not what is inside")
    p.add_argument("--bucket", type=int, default=25, help="ddp: MB of gradients that are summed at a time")
    p.add_argument("--reshard", action="store_true", help="fsdp: drop a layer's weights after its forward, and gather them again")
    p.add_argument("--mixed", choices=("policy", "autocast"), default="autocast",
                   help="fsdp with --dtype autocast: bf16 by FSDP's own MixedPrecisionPolicy, which gathers bf16, or by autocast")
    p.add_argument("--member", metavar="RANK,FILE", help="for the ranks that rank 0 starts")
    args = peer_torch.complete(p.parse_args())
    if args.wrap == "fsdp" and not args.outside:
        args.compile = "parts"      # what fully_shard wraps
    if args.batch % args.ranks:
        p.error("a batch of %d cannot be divided among %d ranks" % (args.batch, args.ranks))
    return args


def by_policy(args):
    """Whether FSDP itself, and not autocast, computes in bf16."""
    return args.wrap == "fsdp" and args.dtype == "autocast" and args.mixed == "policy"


def replicated(args, model):
    from torch.nn.parallel import DistributedDataParallel
    # DDPOptimizer, which compiles from outside bucket by bucket, cannot cut a graph that is declared static.
    return DistributedDataParallel(model, bucket_cap_mb=args.bucket, gradient_as_bucket_view=True, find_unused_parameters=False,
                                   static_graph=args.mode == "eager" or not args.outside)


def sharded(args, model):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy()
    if by_policy(args):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    how = dict(mesh=init_device_mesh("cpu", (args.ranks,)), reshard_after_forward=args.reshard, mp_policy=policy)
    for block in model.blocks:
        fully_shard(block, **how)
    return fully_shard(model, **how)


def wrapped(args, model):
    """What is called as the model on several ranks."""
    import torch
    wrap = {"ddp": replicated, "fsdp": sharded}[args.wrap]
    if args.mode == "compile" and args.outside:
        return torch.compile(wrap(args, model))
    return wrap(args, peer_torch.compiled(args, model))


def join(args, rank, meeting):
    """What make_step() returns, of a rank's share of the batch."""
    import torch.distributed
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=args.ranks)
    share = type(args)(**{**vars(args), "batch": args.batch // args.ranks, "dtype": "policy" if by_policy(args) else args.dtype})
    return peer_torch.make_step(share, wrapped)


def follow(args):
    rank, meeting = args.member.split(",", 1)
    step, _ = join(args, int(rank), meeting)
    for _ in sys.stdin:
        print(json.dumps(peer_torch.timed(step)), flush=True)


class Others:
    """Ranks 1 and up."""

    def __init__(self, args, meeting):
        command = [sys.executable] + sys.argv + ["--member"]
        self.process = [subprocess.Popen(command + ["%d,%s" % (rank, meeting)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                        for rank in range(1, args.ranks)]

    def timed_with(self, step):
        """What timed() gives, of all: the slowest's wall, everybody's processor time, the mean loss."""
        for p in self.process:
            p.stdin.write("step\n")
            p.stdin.flush()
        records = [peer_torch.timed(step)]
        for p in self.process:
            line = p.stdout.readline()
            if not line:
                sys.exit("peer_ranks: a rank ended with status %s" % p.wait())
            records.append(json.loads(line))
        wall, cpu, loss = zip(*records)
        return max(wall), sum(cpu), sum(loss) / len(loss)

    def finish(self):
        for p in self.process:
            p.stdin.close()
            p.wait()


def lead(args):
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        others = Others(args, meeting)
        step, parameters = join(args, 0, meeting)
        peer_torch.report(args, parameters, lambda: others.timed_with(step), [p.pid for p in others.process],
                          ranks=args.ranks, wrap=args.wrap, bucket_mb=args.bucket if args.wrap == "ddp" else None,
                          mixed="policy" if by_policy(args) else None)
        others.finish()


def main():
    args = arguments()
    os.environ.update(LOOPBACK)
    peer_torch.restart_with_settings(args)
    return follow(args) if args.member else lead(args)


if __name__ == "__main__":
    sys.exit(main())
