#!/usr/bin/env python3
"""The step of peer_torch.py on several processes: PyTorch DDP over gloo, the peer of ranks in `make bench`.

    peer_ddp.py --batch 4 --seq 64 --ranks 2

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
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--bucket", type=int, default=25, help="MB of gradients that are summed at a time")
    p.add_argument("--compile", choices=("inside", "outside"), default="inside",
                   help="of DDP: the model is compiled whole, or by PyTorch's DDPOptimizer, bucket by bucket")
    p.add_argument("--member", metavar="RANK,FILE", help="for the ranks that rank 0 starts")
    args = p.parse_args()
    if args.batch % args.ranks:
        p.error("a batch of %d cannot be divided among %d ranks" % (args.batch, args.ranks))
    return args


def distributed(args, model):
    import torch
    from torch.nn.parallel import DistributedDataParallel
    inside = args.mode == "compile" and args.compile == "inside"
    outside = args.mode == "compile" and args.compile == "outside"
    # DDPOptimizer cannot cut a graph that is declared static.
    model = DistributedDataParallel(torch.compile(model) if inside else model, bucket_cap_mb=args.bucket, gradient_as_bucket_view=True,
                                    find_unused_parameters=False, static_graph=not outside)
    return torch.compile(model) if outside else model


def join(args, rank, meeting):
    """What make_step() returns, of a rank's share of the batch."""
    import torch.distributed
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=args.ranks)
    share = type(args)(**{**vars(args), "batch": args.batch // args.ranks})
    return peer_torch.make_step(share, distributed)


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
                sys.exit("peer_ddp: a rank ended with status %s" % p.wait())
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
        peer_torch.report(args, parameters, lambda: others.timed_with(step), ranks=args.ranks, bucket_mb=args.bucket,
                          compile=args.compile if args.mode == "compile" else None)
        others.finish()


def main():
    args = arguments()
    os.environ.update(LOOPBACK)
    peer_torch.restart_with_settings(args)
    return follow(args) if args.member else lead(args)


if __name__ == "__main__":
    sys.exit(main())
