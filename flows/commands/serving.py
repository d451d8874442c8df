"""Commands that stay: serve retrains on a schedule, dashboard shows the runs."""

from espalier.flows.commands.declaring import Group, argument, flag

GROUP = Group()


@GROUP.command(
    "serve the retraining flow on a schedule",
    argument("--cron", required=True, metavar="EXPR", help='when to retrain, for example "0 3 * * *"'),
    argument("--timezone", default="UTC", metavar="ZONE", help="of the times, for example Europe/Paris (UTC)"),
    argument("--name", default="scheduled", help="of the deployment (scheduled)"),
    argument("--port", type=int, help="of the server that is started when there is none (4200)"),
    example='espalier serve --cron "0 3 * * *"',
)
def serve(args) -> None:
    from espalier.flows import serve as serving

    serving.serve(args.project.resolve(), args.cron, name=args.name, zone=args.timezone, port=args.port)


@GROUP.command(
    "a local Prefect server with its page",
    argument("--port", type=int, help="port on 127.0.0.1 (4200)"),
    flag("--open", "open it in the browser"),
    flag("--env", "print what `prefect` needs to reach it, for a shell"),
    example="espalier dashboard --open",
)
def dashboard(args) -> None:
    from espalier.flows import serve as serving

    if args.env:
        print(serving.client_environment(args.project.resolve()))
        return
    serving.dashboard(args.project.resolve(), args.port, args.open)
