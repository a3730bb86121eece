"""The environments of slots on this host: detected at the start, made when a job needs them.

    HostEnvironments.open       finds a sandbox and a runtime for images, and sets the tags for them
    HostEnvironments.provide    makes an environment: pulls, builds, installs; in a helper thread
    HostEnvironments.launch     describes how a slot of some home is started

The task book decides which slot moves to which home.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from federation.messages.environments import Environment
from gateway.base.interpreter import run_module
from gateway.config.environments import ANY_USER, AUTO, FREE, Confines, EnvironmentRules
from gateway.worker.isolation import containers, packages, sandbox
from gateway.worker.isolation.cgroups import CgroupLimits, Cgroups, CgroupsUnavailable, open_cgroups
from gateway.worker.isolation.devices import show_cores
from gateway.worker.isolation.homes import SlotHome, key_of
from gateway.worker.isolation.launch import SLOT, SlotLaunch, bare
from gateway.worker.isolation.seccomp import no_user_namespaces
from gateway.worker.isolation.slot_code import copy_slot_code
from gateway.worker.isolation.strays import lives, owner_of, remove_folder
from gateway.worker.isolation.users import SlotUser, UserUnavailable, find_user
from policies.placement.environments import SANDBOX_TAG, matches, tags_of

PREFIX: Final = "gridfed-slots-"
OFFERS_NONE: Final = (
    "this worker offers no environments: [pool.environments] of its pool does not allow them"
)


class EnvironmentUnavailable(Exception):
    """An environment is unavailable here; the text says why, and gives advice."""


class HostEnvironments:
    """The environments of this worker's slots.

    Args:
        rules: the owner's; None: there are only bare slots.
        memory_bytes: the limit of a slot; 0 for none.
        say: reports to the user.
        confines: the other limits of a slot.
    """

    def __init__(
        self,
        rules: EnvironmentRules | None,
        memory_bytes: int,
        say: Callable[[str], None],
        confines: Confines = FREE,
    ) -> None:
        self._rules = rules
        self._memory_bytes = memory_bytes
        self._confines = confines
        self._limits = CgroupLimits(memory_bytes, confines.cpus, confines.pids_max)
        self._sandbox_limits = self._limits
        self._user: SlotUser | None = None
        self._cgroups: Cgroups | None = None
        self._say = say
        self._folder: Path | None = None
        self._runtime: containers.Runtime | None = None
        self._is_probed = False
        self._made: dict[str, Path | None] = {}  # by key; the folder of packages
        self._numbers = 0
        self._owner = owner_of(os.getpid())
        self.tags: dict[str, bool] = {}

    @property
    def keeps_apart(self) -> bool:
        """Whether other sites' work gets homes of its own."""
        return self._rules is not None and self._rules.keeps_apart

    @property
    def has_user(self) -> bool:
        """Whether slots run as another user than the worker."""
        return self._user is not None

    def open(self) -> None:
        """Detect what this host offers.

        Raises:
            EnvironmentUnavailable: the means to isolate other sites' work are missing, and it must
                not run without.
        """
        self._open_user()
        rules = self._rules
        if rules is None:
            self._open_cgroups()
            return
        _remove_strays()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{self._owner}-"))
        self._kit = copy_slot_code(self._folder / "kit")
        images: tuple[str, ...] = ()
        try:
            if rules.sandbox == AUTO:
                rules = self._rules = self._choose(rules)
            elif rules.sandbox == "bubblewrap":
                sandbox.probe(self._kit)
            elif rules.sandbox == "user" and self._user is None:
                raise UserUnavailable(
                    "slots run as the worker's own user: set user in its [[pool]], and run "
                    "the worker as root"
                )
            if rules.sandbox == "bubblewrap":
                self._sandbox_limits = self._limits.within(
                    CgroupLimits(0, rules.cpus, rules.pids_max)
                )
                if not no_user_namespaces():
                    self._say("can't prevent user namespaces inside bubblewrap on this host")
            if rules.has_images:
                images = self._open_runtime(rules)
        except (
            sandbox.SandboxUnavailable,
            containers.ContainerUnavailable,
            UserUnavailable,
        ) as error:
            raise EnvironmentUnavailable(
                f'sandbox = "{rules.sandbox}" is not available: {error}'
            ) from None
        self._open_cgroups()
        if self._usual is not None:
            self.provide(self._usual)
        if rules.takes_others:
            self.tags[f"{SANDBOX_TAG}{rules.sandbox}"] = True
        if rules.accept_risk:
            self._say(f"does not sandbox tasks; its owner accepts the risk: {rules.accept_risk}")
        self.tags |= tags_of(images, packages.kinds(rules))

    def _choose(self, rules: EnvironmentRules) -> EnvironmentRules:
        """Return the rules with the best available sandbox for other sites' work."""
        try:
            sandbox.probe(self._kit)
        except sandbox.SandboxUnavailable as error:
            if self._user is not None:
                return replace(rules, sandbox="user")
            self._say(
                f"accepts no work of other sites: {error}; or, as root, run the slots as "
                'another user; or accept the risk with sandbox = "none" '
                "(docs/environments.md)"
            )
            return replace(rules, sandbox="none")
        return replace(rules, sandbox="bubblewrap")

    def _open_user(self) -> None:
        """Find the user of slots. Raises EnvironmentUnavailable where one is required."""
        wanted = self._confines.user
        try:
            self._user = find_user(wanted)
        except UserUnavailable as error:
            if wanted != ANY_USER:
                raise EnvironmentUnavailable(
                    f'user = "{wanted}" is not possible: {error}'
                ) from None
            self._say(
                "runs its slots as its own user, so tasks of this site's own users can act as the "
                f"site (docs/trust.md): {error}"
            )
        if self._user is not None:
            self._say(f"runs its slots as user {self._user.name}")

    def _open_cgroups(self) -> None:
        if self._confines.cgroups == "off" or not self._sandbox_limits:
            return
        try:
            self._cgroups = open_cgroups(os.getpid())
            self._cgroups.make(self._sandbox_limits).close()  # check that they take the limits
        except (CgroupsUnavailable, OSError) as error:
            self._close_cgroups()
            if self._confines.cgroups == "required":
                raise EnvironmentUnavailable(
                    f'cgroups = "required" is not possible: {error}'
                ) from None
            self._say(
                f"runs without control groups: {error}; memory is monitored, cpus and "
                "pids_max are not enforced"
            )

    def _close_cgroups(self) -> None:
        if self._cgroups is not None:
            self._cgroups.close()
            self._cgroups = None

    def _open_runtime(self, rules: EnvironmentRules) -> tuple[str, ...]:
        try:
            self._runtime = containers.find_runtime(rules)
            strays = containers.remove_strays(self._runtime)
        except containers.ContainerUnavailable as error:
            if rules.sandbox == "image":
                raise
            self._say(f"can't run images: {error}")
            return ()
        if strays:
            self._say(f"removed {strays} containers of workers that no longer exist")
        return rules.images

    def close(self) -> None:
        """Remove all files and groups of this host."""
        self._close_cgroups()
        if self._folder is not None:
            remove_folder(self._folder)

    # --- environments ----------------------------------------------------------------------------

    def is_ready(self, key: str) -> bool:
        """Whether an environment is here, by its key."""
        return key == "" or key in self._made

    def forget(self, home: SlotHome) -> None:
        """Forget an environment that is useless or gone: it is made anew when it is needed."""
        self._made.pop(home.environment, None)

    def provide(self, environment: Environment) -> None:
        """Make an environment; it may take minutes. Raises EnvironmentUnavailable."""
        rules = self._rules
        if rules is None:
            raise EnvironmentUnavailable(OFFERS_NONE)
        try:
            if environment.image:
                self._provide_image(environment.image, rules)
                place = None
            else:
                place = packages.provide(environment, rules)
        except (containers.ContainerUnavailable, packages.PackagesUnavailable, OSError) as error:
            raise EnvironmentUnavailable(f"{environment}: {error}") from None
        self._made[key_of(environment)] = place

    def _provide_image(self, image: str, rules: EnvironmentRules) -> None:
        is_allowed = any(matches(image, pattern) for pattern in rules.images)
        if not is_allowed and image != rules.sandbox_image:
            known = ", ".join(rules.images) or "none"
            raise containers.ContainerUnavailable(
                f"the worker's owner does not allow this image, only {known}"
            )
        if self._runtime is None:
            raise containers.ContainerUnavailable("no container runtime works on this host")
        containers.provide(self._runtime, image, rules)
        if not self._is_probed:
            found = containers.probe_below(self._runtime, image, rules)
            if not found.is_limiting and self._confines.cgroups == "required":
                raise containers.ContainerUnavailable(
                    f'cgroups = "required" is not possible: {found} does not enforce limits '
                    "on containers here"
                )
            self._runtime, self._is_probed = found, True
            self._say(f"runs images with {found}")
            if not found.is_limiting:
                self._say(
                    f"{found} does not enforce cpus and pids_max on containers; memory is monitored"
                )

    @property
    def usual(self) -> str:
        """The key of the default environment of other sites' work; empty without one."""
        return key_of(self._usual)

    @property
    def _usual(self) -> Environment | None:
        if self._rules is None or self._rules.sandbox != "image":
            return None
        return Environment(image=self._rules.sandbox_image, python=packages.PYTHON)

    def objection(self, home: SlotHome) -> str:
        """Return why no slot here can have such a home, though its environment is here."""
        if home.gpus and (home.image or home.site):
            return "GPUs are not passed into containers and sandboxes"
        is_image = self._rules is not None and self._rules.sandbox == "image"
        if home.site and is_image and not home.image:
            return (
                f"work of {home.site} runs in images here, and can't install packages: specify "
                "an image"
            )
        return ""

    # --- slots -----------------------------------------------------------------------------------

    def launch(
        self, home: SlotHome, environment: Mapping[str, str], cores: frozenset[int] | None = None
    ) -> SlotLaunch:
        """Return how to start a slot of this home on these cores; its environment is here."""
        launch = self._launch(home, environment, cores)
        limits = self._sandbox_limits if home.site else self._limits
        if self._cgroups is None or launch.socket or not limits:
            return replace(launch, cores=cores)
        try:
            return replace(launch, cores=cores, group=self._cgroups.make(limits))
        except CgroupsUnavailable as error:
            self._say(f"can't create a control group for a slot: {error}")
            return replace(launch, cores=cores)

    def _launch(
        self, home: SlotHome, environment: Mapping[str, str], cores: frozenset[int] | None
    ) -> SlotLaunch:
        rules, user = self._rules, self._user
        if rules is not None and home.image:
            return self._container(home, rules, cores)
        place = self._made.get(home.environment)
        python = None if place is None else place / "bin" / "python"
        if rules is not None and home.site and rules.sandbox == "bubblewrap":
            readable = () if place is None else (place,)
            shut_in = sandbox.shell(
                self._kit,
                readable,
                network=rules.network,
                tmp_bytes=rules.tmp_bytes,
                site=home.site,
            )
            kept = sandbox.variables(environment, self._kit, rules.network)
            return sandbox.launch(shut_in, kept, self._memory_bytes, python)
        shell = () if user is None else user.shell
        if user is not None:
            environment = user.variables(environment)
        # Not our own, which the user of the tasks might be unable to enter.
        folder = "" if user is None else user.home
        if python is None:
            return bare(environment, self._memory_bytes, shell, folder)
        variables = {**environment, "PYTHONPATH": str(self._kit)}
        command = (*shell, *run_module(SLOT, python=str(python), is_ours=user is None))
        return SlotLaunch(command, variables, self._memory_bytes, folder=folder)

    def _container(
        self, home: SlotHome, rules: EnvironmentRules, cores: frozenset[int] | None
    ) -> SlotLaunch:
        assert self._runtime is not None, "an image must be provided before it is used"
        assert self._folder is not None, "the runtime must be opened before it is used"
        self._numbers += 1
        sockets = self._folder / f"sockets-{self._numbers}"
        sockets.mkdir()
        sockets.chmod(0o755)  # the slot is another user, under any umask of ours
        name = f"gridfed-{self._owner}-{self._numbers}"
        shape = containers.ContainerShape(
            name,
            self._owner,
            self._kit,
            sockets,
            self._memory_bytes,
            show_cores(cores or ()),
            home.site,
        )
        command = containers.run_command(self._runtime, home.image, rules, shape)
        return SlotLaunch(
            command,
            dict(os.environ),
            self._memory_bytes,
            socket=str(sockets / containers.SOCKET_NAME),
            remove=(*self._runtime.command, "rm", "--force", name),
            python=home.image_python,
        )

    def explain_start(self, home: SlotHome, code: int | None, said: str) -> str:
        """Return why a slot of this home never became ready."""
        if self._rules is not None and home.image:
            return containers.explain_end(code or 0, said, home.image, self._rules)
        return f"{home} failed to start"


def _remove_strays() -> None:
    """Remove folders of agents that were killed, but not those of other users."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).rpartition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # another agent removes them too
            if path.lstat().st_uid == os.getuid() and not lives(owner):
                remove_folder(path)
