"""Commands that stay: serve retrains on a schedule, dashboard shows the runs."""


def serve(args) -> None:
    from espalier.flows import serve as serving

    serving.serve(args.project.resolve(), args.cron, name=args.name, zone=args.timezone, port=args.port)


def dashboard(args) -> None:
    from espalier.flows import serve as serving

    if args.env:
        print(serving.client_environment(args.project.resolve()))
        return
    serving.dashboard(args.project.resolve(), args.port, args.open)
