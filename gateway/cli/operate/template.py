"""The configuration that `gridfed init` writes: every setting, with its purpose."""

from typing import Final

# Settings that are commented out have their default; tables in double brackets are examples. Those
# of pools of adapters follow it (gateway.grids.kinds.examples).
TEMPLATE: Final = """\
# Site {site} of federation {federation}. A commented-out setting has the value that is shown;
# [[tables]], [groups], [credit] and [fair_share] are examples.
# See docs/configuration.md for details, and docs/trust.md for trust between sites.
# Run it: gridfed gateway --config {path}

[site]
name = {site_text}
# zone = "UTC"                  # of times written without an offset, as in "Europe/London"
# Where clients, workers and this host's commands connect. An address that other hosts can reach
# needs a secret_file, and tls+tcp:// a certificate.
listen = [{listen}]
state = {state}                 # the folder of the database
# database = ""                 # an SQLAlchemy URL; empty: SQLite in state
# database_wait_s = 300.0       # how long a start waits for an unreachable PostgreSQL
# secret_file = ""              # the shared secret; it or tokens, to listen beyond this host
# token_required = false        # accept only signed tokens, except on this host's own socket
# tls_certificate_file = ""     # certificate and key (PEM) for tls+tcp://
# others = []                   # gateways that our clients fall back to when this one is lost
# tls_ca_file = ""              # require a certificate of this CA from clients and workers

[federation]
folder = {folder}
# Where other gateways connect, by mutual TLS with pinned leaves, and where invited sites join.
# Others must be able to reach both; empty for a site that only dials, and sends no invitations.
listen = {peer_listen}
join_listen = {join_listen}
bulk_listen = {bulk_listen} # where other sites fetch objects; empty: these stay here
{advertise} # the public addresses of listen on our card, if they differ
{join_advertise} # the public addresses of join_listen in invitations, if they differ
{bulk_advertise} # the public address of bulk_listen, if it differs
contact = {contact}             # on our card, for operators
# doors = []                    # where users of other sites may connect when theirs is lost
# follow_expulsions = "two"     # expulsions that count here: of "any" site, of "two" sites, "ours"
# connections = 256             # sessions of other gateways at a time
# strangers = 64                # unauthenticated connections to each port
# host_strangers = 32           # ... from one host
# handshakes_per_s = 50.0       # new connections from one host per second to each port
# frames_per_s = 2000.0         # of one other gateway; more are slowed down
# queue_bytes = 67108864        # queued for one other gateway
# give_up_s = 30.0              # after so long, messages to an unreachable site are dropped
# idle_s = 60.0                 # after so long, an unused connection is closed
# rotation_spread_s = 3600.0    # how long new keys are announced before they are used
# rotation_overlap_s = 1200.0   # how long the old ones stay valid after that
# rotation_await_s = 604800.0   # the longest wait for members' acknowledgements

# [log]
# file = ""                     # the log; SIGHUP opens it anew, after rotation. Empty: stderr

[limits]
# heartbeat_s = 2.0             # a silent peer times out after 4 heartbeats
# grace_s = 10.0                # a session outlives its connection by this; workers' lease
# client_tasks = 200000         # unfinished tasks of one client
# client_bytes = 268435456      # ... and their arguments
# client_jobs = 50000           # unfinished jobs of one client
# client_function_bytes = 536870912  # functions of one client that its jobs use
# detached_bytes = 1073741824   # arguments of all detached jobs that have not run
# function_wait_s = 60.0        # how long a job may wait for its function
# task_losses = 5               # workers that a task may lose before it fails
# store_wait_s = 30.0           # how long jobs are accepted while the database fails
# message_bytes = 67108864      # the largest argument or result
# sessions = 4096               # clients and workers at a time
# connections = 512             # before their handshake has ended
# host_connections = 256        # ... from one host
# questions = 256               # unanswered questions of one client
# unread_bytes = 67108864       # unread results of a client; over it, its work waits
# results_s = 2592000.0         # how long results of a detached job are kept; 0: forever
# task_log_bytes = 65536        # output that is kept of a task (the last of it), ...
# job_log_bytes = 16777216      # ... of a job, ...
# site_log_bytes = 1073741824   # ... and of all jobs; 0: none is kept

# [objects]
# memory = "30%"                # room for objects on this host: a share of its memory, or "8 GiB"
# By default there is no other limit of one user or project ("user" and "project" set them), what
# has no room in memory is refused ("spill_dir" is a folder where it goes, as "/var/tmp/gridfed"),
# and holding it is free ("hold" is its price, as "0.03 USD/GB-month"). So are the objects of other
# sites' calls that come here, and results that go ("receive" and "send", as "0.02 USD/GB").

[contracts]
# Contracts with other sites. The lease is how long an unreachable site keeps our tasks; it must be
# more than twice grace_s.
# lease_s = 30.0
# valid_s = 5.0                 # how long our quotes are valid
# hold_s = 5.0                  # how long slots are held for an uncommitted contract
# quote_wait_s = 1.0            # how long to wait for the slowest quote
# bill_s = 0.25                 # how often deliveries are billed
# plan_s = 0.25                 # how often a waiting job is placed again
# idle_s = 10.0                 # a contract without work is closed after so long
# rest_s = 5.0                  # back-off of a site that declined; doubles each time,
# rest_max_s = 300.0            # ... up to this
# contracts_max = 10000         # with one site, in each direction
# unsettled_bytes_max = 268435456  # unsettled results of one buyer; over it, no task starts
# buyer_bytes_max = 1073741824  # arguments of one buyer; over it, contracts take no more, and end
# grant_s = 86400.0             # how long the grant of a contract lets work start

[placement]
# The placement of our own users' work.
# objective = "cheapest"        # or "fastest", "greenest", {{ money = 1, time = 1, carbon = 0 }}
# prefer_own_s = 0.0            # work that starts within so long stays here; inf: all of it
# band = 0.10                   # candidates that differ by at most this share count as equal
# currency = "USD"              # prices are compared in it
# rates = {{}}                    # the value of one unit of another currency: {{ EUR = 1.1 }}
# quotes_max = 3                # sites asked for a quote for the same work
# sites_max = 8                 # pools that one job is split over at a time
# task_s_unknown = 1.0          # the assumed duration of a task of unknown duration
# defer_gain = 0.1              # deferrable work waits for hours that save this share,
# defer_margin_s = 60.0         # ... if it ends so long before its deadline,
# defer_margin = 0.5            # ... even if its tasks take longer by this share

[books]
# Our books, and their comparison with other sites' books: docs/books.md.
# detail_days = 90.0            # older records are rolled up, no sum changes; 0: never
# reconcile_s = 600.0           # how often the books are checked for days to compare
# settle_s = 600.0              # how long after its end a day is compared
# period = "month"              # the period that is closed as a whole: "day", "week", "month"
# dispute_days = 30.0           # how long after its delivery a charge may be disputed
# void_share_max = 0.2          # a buyer's share of voided deliveries that is logged; 1: never

[alerts]
# The evaluation and delivery of each [[alert]] below.
# interval_s = 60.0             # how often the rules are evaluated
# webhook_timeout_s = 10.0      # how long a webhook may take
# command_timeout_s = 30.0      # how long a command may run
# tries = 4                     # the number of attempts of an action
# retry_s = 2.0                 # the wait before the second attempt
# ca_file = ""                  # the only CAs for webhooks; empty: the system's

# Alert rules: docs/configuration.md has all settings of each kind.
# [[alert]]
# name = "risk this month"
# kind = "budget"               # or "price", "unacknowledged"
# amount = "1000 USD"
# project = "risk"              # or user, group, site, origin; without any: all our users
# levels = [50, 80, 100]        # per cent of the amount
# webhook = "https://example.org/hook"
# command = ["logger", "gridfed"]

# Groups of our users, for reports and budgets: one line per group.
# [groups]
# "equity desk" = ["ann", "bob"]

# Entitlements to use pools: docs/entitlements.md. Without any, our own users may use all pools, and
# other sites those that the trust book permits; with an `allow`, only the parties that it names.
# [[entitlement]]
# allow = "group:equity desk"   # or deny; user:, project:, site:NAME, ours, others, all; or a list
# pools = ["local", "elsewhere"]  # our pools by name, other sites' pools; without it: all
# windows = ["risk run"]        # while one of these is in force; without it: always
# slots_max = 40                # at one time, all parties together
# user_slots_max = 25           # ... and each user
# queued_max = 200000           # unfinished tasks here, all parties together
# user_queued_max = 100000      # ... and each user
# priority_max = 10.0           # the highest priority of their jobs
# classes = ["guaranteed", "preemptible"]  # the price classes of their jobs
# [[entitlement]]
# deny = "project:legacy"

# Reservations of slots: docs/reservations.md. Without this table nothing can be reserved.
# [reservations]
# slots = "50%"                 # of a pool, reserved at one time; or a number of slots
# longest = "24h"               # the longest reservation
# ahead = "14d"                 # how far ahead a reservation may end
# unused_factor = 1.0           # the share of the price that unused time costs
# cancel_factor = 0.1           # the share of the price that cancelled time costs
# hold_s = 30.0                 # how long slots are held during a booking at several sites
# drain_lead_s = 0.0            # how long before the start tasks are warned to make room
# grace_s = 30.0                # how long after it they may run; an open window overrides it

# Budgets: docs/budgets.md.
# [[budget]]
# name = "risk this month"
# who = "project:risk"          # or user:, group:, site:NAME, or ours, others, all
# amount = "1000 USD"           # or "500 slot-h": slot time, at any cost
# period = "month"              # or day, week, quarter, year, ever
# zone = "Europe/London"        # the time zone of its midnight
# hard = true                   # work that may exceed it does not start; false: only count
# running = "finish"            # running tasks when it is exhausted; or "stop"
# waiting = "wait"              # waiting tasks: wait for the next period; or "end"
# factor = 2.0                  # held for a task without a time limit: times the usual
# unknown_s = 60.0              # the same for a task of unknown duration
# sites = ["paris"]             # sites that may spend from it, by slices
# slice_s = 300.0               # how long a slice is valid without a renewal by us

# A budget of another site that our users spend from.
# [[budget]]
# name = "shared"
# who = "project:shared"
# owner = "paris"
# slice = "50 USD"              # the amount to hold at a time

# The most that a site may owe us; "*": each site that has no line of its own.
# [credit]
# paris = "500 USD"

# Fair share of the slots by past use: docs/configuration.md, Fair share. Off without this table.
# [fair_share]
# half_life = "7d"              # past use counts half after so long
# max_wait = "1d"               # after so long a wait for a slot, a share is first, once
# each = "project"              # one share per user, group or project for all others
# [[fair_share.share]]
# name = "trading desk"         # the first share that includes a job gets it
# shares = 3                    # its weight among its siblings
# [[fair_share.share]]
# name = "risk"
# parent = "trading desk"
# who = "project:risk"          # or user:, group:, site:NAME, ours, others, all
# each = "user"                 # one sub-share per user

# What other sites see of our pools; the first entry that matches a pool and a reader decides.
# Without any, all sites see all pools; with any, an unmatched pool is hidden.
# [[show]]
# pools = ["local"]             # without it: every pool
# readers = ["paris"]           # only these sites, directly; without it: all, by gossip
# hidden = false                # hide the pools
# coarse = false                # capacity and load as powers of two, and no rates
# windows = true                # show all windows, not only the next
# members = false               # show the projects and sites that may use it

# Without any pool there is one, "workers", which workers of other hosts join.
# [[pool]]
# name = "local"
# kind = "local"                # "local": processes here; "remote": workers join; or a grid's
# slots = 0                     # local only; 0: one per core
# memory_bytes = 0              # per slot, 0: no limit; not of a remote pool
# cpus = 0                      # cores of a slot; 0: no limit; cpus to gpus: not remote
# pids_max = 0                  # processes and threads of a slot; 0: no limit
# cgroups = "auto"              # control groups: "auto": if available; "off"; "required"
# pin = false                   # each slot to cores of its own
# user = "auto"                 # local only: the user of slots, if root; "none"; a name
# gpus = []                     # the devices that the tag gpu counts; empty: 0, 1, ...
# price = "0.04 USD"            # per slot-hour
# tags = {{ linux = true, gpu = 2 }}
# region = ""                   # shown in our advert
# jurisdiction = ""             # the jurisdiction of its data; jobs may require it
# carbon_g_per_kwh = 400.0      # of its electricity; without it "greenest" skips it
# slot_watts = 12.0             # drawn by a busy slot
# claims = [{{ who = "others", borrows = "50%" }}]  # claims while no window is open
# [pool.environments]           # the environments of jobs: docs/environments.md
# images = ["localhost/quant:*"]
# packages = false              # whether jobs may bring Python packages
# sandbox = "auto"              # other sites' work: "bubblewrap", "user", "image"; "none" takes
# accept_risk = ""              # ... no such work unless accept_risk has the words that accept it
# [pool.carbon]                 # instead of the last two: power and emissions in detail
# cloud = "aws"                 # see docs/configuration.md
# series = {{ file = "grid.csv" }}
# [pool.tariff]                 # the rest of its price list: docs/configuration.md, Prices
# minimum = "0.0001 USD"        # the minimum cost of a task
# preemptible = 0.4             # the factor for preemptible work
# bands = [{{ name = "night", from = "22:00", to = "06:00", factor = 0.5 }}]
# [[pool.window]]               # calendar windows with their own rules: docs/windows.md
# name = "risk run"
# days = "business"             # or a cron and lasts_s, instead of days, from and to
# from = "17:00"
# to = "23:00"
# zone = "Europe/London"
# claims = [{{ who = "others", borrows = 0 }}]
# [[pool]]                      # a grid starts its workers on demand: docs/grids.md
# name = "burst"
# kind = "processes"
# [pool.processes]
# slots_max = 16
# [pool.scale]                  # how it grows and shrinks
# max = 16                      # the most slots
"""
