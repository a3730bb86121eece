"""The configuration that `gridfed init` writes: every setting, with its purpose."""

from typing import Final

# Settings that are commented out have their default; tables in double brackets are examples.
TEMPLATE: Final = """\
# Site {site} of federation {federation}. What is commented out has the value that is shown, but for
# [[tables]], [groups], [credit] and [fair_share], which are examples.
# docs/configuration.md says more, docs/trust.md how sites come to trust each other.
# Run it: gridfed gateway --config {path}

[site]
name = {site_text}
# Where clients, workers and the commands of this host come in. Beyond this host it takes a
# secret_file, and tls+tcp:// a certificate.
listen = [{listen}]
state = {state}                 # the folder of the database
# database = ""                 # an SQLAlchemy URL; empty: SQLite in state
# database_wait_s = 300.0       # a start waits so long for a PostgreSQL that is away
# secret_file = ""              # who knows it may come in; needed to listen beyond this host
# token_required = false        # beside this host's own socket, take signed tokens only
# tls_certificate_file = ""     # certificate and key (PEM) for tls+tcp://
# others = []                   # gateways that clients of ours may go to when this one is lost
# tls_ca_file = ""              # ask diallers for a certificate of this CA

[federation]
folder = {folder}
# Where other gateways come in, by mutual TLS with pinned leaves, and where those who were invited
# do. Others must be able to reach both; empty for a site that only dials, and invites nobody.
listen = {peer_listen}
join_listen = {join_listen}
{advertise} # what our card says of listen, where others see it differently
{join_advertise} # what invitations say of join_listen likewise
contact = {contact}             # on our card, for people
# doors = []                    # where users of other sites may come in when theirs is lost
# follow_expulsions = "two"     # whose expulsions count here: "any", "two" sites', or "ours" alone
# connections = 256             # sessions of other gateways at a time
# strangers = 64                # connections to each port that have not proved who they are
# host_strangers = 32           # and of one host
# handshakes_per_s = 50.0       # new connections of one host a second to each port
# frames_per_s = 2000.0         # of one other gateway; who sends more is slowed down
# queue_bytes = 67108864        # what may wait for one other gateway
# give_up_s = 30.0              # what waits for a site out of reach for so long is dropped
# idle_s = 60.0                 # a connection that nobody needs is closed after so long
# rotation_spread_s = 3600.0    # how long new keys are on our card before they are used
# rotation_overlap_s = 1200.0   # how long the old ones stay on it after that
# rotation_await_s = 604800.0   # members that have not acknowledged them are waited for so long

[limits]
# heartbeat_s = 2.0             # a silent peer is given up after 4 heartbeats
# grace_s = 10.0                # a session outlives its pipe by this; workers' lease
# client_tasks = 200000         # unfinished tasks of one client
# client_bytes = 268435456      # and their arguments
# client_jobs = 50000           # unfinished jobs of one client
# client_function_bytes = 536870912  # functions of one client that its jobs need
# detached_bytes = 1073741824   # arguments of all detached jobs that have not run
# function_wait_s = 60.0        # how long a job may wait for the function that it names
# task_losses = 5               # workers that may be lost under a task that runs there
# store_wait_s = 30.0           # how long jobs are taken while nothing can be recorded
# message_bytes = 67108864      # the largest argument or result
# sessions = 4096               # clients and workers at a time
# connections = 512             # that have not come in yet
# host_connections = 256        # and of one host
# questions = 256               # of one client that are not answered yet
# unread_bytes = 67108864       # results left unread before a client's work waits
# results_s = 2592000.0         # how long results of a detached job are kept; 0: for ever

[contracts]
# How this site deals with others. The lease is how long a site that we can't reach keeps our tasks,
# and must be over twice grace_s.
# lease_s = 30.0
# valid_s = 5.0                 # how long a quote of ours stands
# hold_s = 5.0                  # how long slots stay set aside for a contract that is not committed
# quote_wait_s = 1.0            # how long to wait for the slowest of the quotes that we asked for
# bill_s = 0.25                 # how often deliveries are billed
# plan_s = 0.25                 # how often the places of a job that waits are chosen anew
# idle_s = 10.0                 # a contract without work is closed after so long
# rest_s = 5.0                  # a site that declined is spared for so long, then twice as long,
# rest_max_s = 300.0            # ... up to this
# contracts_max = 10000         # with one site, in each direction
# unsettled_bytes_max = 268435456  # results that one buyer has not settled; over it none starts
# buyer_bytes_max = 1073741824  # arguments of one buyer; over it a contract takes no more, and ends
# grant_s = 86400.0             # how long what we grant for a contract lets work start

[placement]
# Where the work of our own users goes.
# objective = "cheapest"        # or "fastest", "greenest", {{ money = 1, time = 1, carbon = 0 }}
# prefer_own_s = 0.0            # work stays here if it starts within so long; inf: it never leaves
# band = 0.10                   # what differs by no more than this share counts as equal
# currency = "USD"              # prices are compared in it
# rates = {{}}                    # what one of another is worth, to compare by: {{ EUR = 1.1 }}
# quotes_max = 3                # sites asked for a quote for the same work
# sites_max = 8                 # places that one job is split over at a time
# task_s_unknown = 1.0          # a task of unknown length is compared as if it took this
# defer_gain = 0.1              # what may wait for greener hours does for this share at least,
# defer_margin_s = 60.0         # ... to be done so long before its deadline,
# defer_margin = 0.5            # ... also if its tasks took longer by this share

[books]
# How our books are kept, and compared with other sites': docs/books.md.
# detail_days = 90.0            # what ended longer ago is rolled up, no sum changes; 0: never
# reconcile_s = 600.0           # how often we look whether there is something to compare
# settle_s = 600.0              # how long after its end a day is compared
# period = "month"              # what is closed as a whole: "day", "week", "month"
# dispute_days = 30.0           # how long after its delivery something may be disputed
# void_share_max = 0.2          # what a buyer may void before the log says so; 1: never

[alerts]
# How each [[alert]] below is looked for and given.
# interval_s = 60.0             # how often is looked
# webhook_timeout_s = 10.0      # how long a webhook may take
# command_timeout_s = 30.0      # how long a command may run
# tries = 4                     # how often an action is tried in all
# retry_s = 2.0                 # the wait before the second try
# ca_file = ""                  # the only authorities for webhooks; empty: the system's

# What to be told of: docs/configuration.md has all that can be said of each kind.
# [[alert]]
# name = "risk this month"
# kind = "budget"               # or "price", "unacknowledged"
# amount = "1000 USD"
# project = "risk"              # or user, group, site, origin; without any all our users
# levels = [50, 80, 100]        # per cent of it
# webhook = "https://example.org/hook"
# command = ["logger", "gridfed"]

# Groups of our users, for reports and budgets: one line a group.
# [groups]
# "equity desk" = ["ann", "bob"]

# Who may use which pools: docs/entitlements.md. Without any, our own users may use all of them, and
# other sites what the trust book permits; with one that allows, only who is named may.
# [[entitlement]]
# allow = "group:equity desk"   # or deny; user:, project:, site:NAME, ours, others, all; or a list
# pools = ["local", "elsewhere"]  # ours by name, and those of other sites; without it: every pool
# windows = ["risk run"]        # while one of these holds; without it: always
# slots_max = 40                # at one time, all of them together
# user_slots_max = 25           # and each user
# queued_max = 200000           # tasks of all of them here that have not ended
# user_queued_max = 100000      # and of each user
# priority_max = 10.0           # the highest that their jobs may have
# classes = ["guaranteed", "preemptible"]  # price classes that their jobs may have
# [[entitlement]]
# deny = "project:legacy"

# Slots kept for somebody for a time: docs/reservations.md. Without it nothing can be reserved.
# [reservations]
# slots = "50%"                 # of a pool, reserved at one time; or a number
# longest = "24h"               # that one may be
# ahead = "14d"                 # that one may end ahead of now
# unused_factor = 1.0           # of its price, for reserved time that is not used
# cancel_factor = 0.1           # of its price, for what is left of it when it is cancelled
# hold_s = 30.0                 # slots are held so long for who books at several sites
# drain_lead_s = 0.0            # what must make room is told so long before
# grace_s = 30.0                # and may run so long after; where a window is open, as that says

# Who may use up how much: docs/budgets.md.
# [[budget]]
# name = "risk this month"
# who = "project:risk"          # or user:, group:, site:NAME, or ours, others, all
# amount = "1000 USD"           # or "500 slot-h": the time of slots, whatever it costs
# period = "month"              # or day, week, quarter, year, ever
# zone = "Europe/London"        # whose midnight
# hard = true                   # nothing starts that may take more; false: it only counts
# running = "finish"            # what becomes of what runs when it is exhausted; or "stop"
# waiting = "wait"              # and of what waits: it waits for the next period; or "end"
# factor = 2.0                  # held for a task without a time limit: times what is usual
# unknown_s = 60.0              # the same where nobody knows what is usual
# sites = ["paris"]             # that may spend from it, by slices
# slice_s = 300.0               # how long a slice may be used without a word of ours

# A budget of another site that our users spend from.
# [[budget]]
# name = "shared"
# who = "project:shared"
# owner = "paris"
# slice = "50 USD"              # as much as we like to have at a time

# What sites may owe us at any time; "*": each that has no line of its own.
# [credit]
# paris = "500 USD"

# Slots shared out, by what was used: docs/configuration.md, Fair share. Without it nothing is.
# [fair_share]
# half_life = "7d"              # after so long half of what was used is forgotten
# max_wait = "1d"               # whoever has waited so long for a slot goes first, once
# each = "project"              # who is in no share below: a share for each user, group, project
# [[fair_share.share]]
# name = "trading desk"         # of those that include somebody's work the first has it
# shares = 3                    # its weight against those beside it
# [[fair_share.share]]
# name = "risk"
# parent = "trading desk"
# who = "project:risk"          # or user:, group:, site:NAME, ours, others, all
# each = "user"                 # within it a share for each user

# What others see of our pools; the first that matches a pool and a reader decides. Without any, all
# see all pools; with any, what none matches is not shown.
# [[show]]
# pools = ["local"]             # without it: every pool
# readers = ["paris"]           # these sites alone, told apart; without it: all, by gossip
# hidden = false                # not shown at all
# coarse = false                # capacity and load as powers of two, and no rates
# windows = true                # when it takes work, beyond the window that comes next
# members = false               # which projects and sites may use it

# Without any pool there is one, "workers", that workers of other hosts dial in to.
# [[pool]]
# name = "local"
# kind = "local"                # "local": processes here; "remote": workers dial in; or a grid's
# slots = 0                     # local only; 0: one per core
# memory_bytes = 0              # per slot, 0: no limit; not of a remote pool
# cpus = 0                      # not remote either, as all to gpus: cores of a slot; 0: no limit
# pids_max = 0                  # processes and threads of a slot; 0: no limit
# cgroups = "auto"              # control groups: "auto", where there are any; "off"; "required"
# pin = false                   # each slot to cores of its own
# user = "auto"                 # local only: whom slots run as, of root's gateway; "none"; a name
# gpus = []                     # names of what the tag gpu counts; empty: 0, 1, ...
# price = "0.04 USD"            # per slot-hour
# tags = {{ linux = true, gpu = 2 }}
# region = ""                   # what our advert says of it
# jurisdiction = ""             # where its data lies; jobs may demand it
# carbon_g_per_kwh = 400.0      # of its electricity; without it "greenest" passes it over
# slot_watts = 12.0             # that a busy slot draws
# claims = [{{ who = "others", borrows = "50%" }}]  # who may use how much, while no window is open
# [pool.environments]           # what jobs may run in: docs/environments.md
# images = ["localhost/quant:*"]
# packages = false              # whether jobs may bring Python packages
# sandbox = "auto"              # other sites' work: "bubblewrap", "user", "image", "none" (which
# accept_risk = ""              # ... takes no such work, unless this has the words that accept it)
# [pool.carbon]                 # instead of the last two: what it draws and emits, in detail
# cloud = "aws"                 # see docs/configuration.md
# series = {{ file = "grid.csv" }}
# [pool.tariff]                 # the rest of its price list: docs/configuration.md, Prices
# minimum = "0.0001 USD"        # what a task costs at least
# preemptible = 0.4             # the factor for work that makes way
# bands = [{{ name = "night", from = "22:00", to = "06:00", factor = 0.5 }}]
# [[pool.window]]               # spans of the calendar with rules of their own: docs/windows.md
# name = "risk run"
# days = "business"             # or a cron and lasts_s, instead of days, from and to
# from = "17:00"
# to = "23:00"
# zone = "Europe/London"
# claims = [{{ who = "others", borrows = 0 }}]
# [[pool]]                      # whose workers a grid starts, while there is work: docs/grids.md
# name = "burst"
# kind = "processes"
# [pool.processes]
# slots_max = 16
# [pool.scale]                  # how it grows and shrinks
# max = 16                      # slots that there may be
# [[pool]]                      # IBM Symphony, which has its own workers: docs/grids_symphony.md
# name = "symphony"
# kind = "symphony"
# [pool.symphony]
# way = "rest"                  # or "soamapi"
# application = "gridfed"
# login_file = "symphony.login" # one line: USER:PASSWORD
# url = "https://sym:8050"
# slots = 64                    # 0: as EGO says (ego_url, consumer)
# take_up_s = 120               # what a restart finds at work waits so long for its tasks; 0: ended
# on_stop = "close"             # or "detach": what is at work goes on when this gateway stops
"""
