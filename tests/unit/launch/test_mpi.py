"""MPI: one task starts all ranks."""

from __future__ import annotations


def test_workers_alone_are_folded_and_a_plain_program_goes_behind_mpiexec(launch):
    made = launch({"worker": 1}, members={"worker": {"slots": 4}}, framework="mpi")["worker-0"]
    (only,) = made.processes
    assert only.argv == ("mpiexec", "-n", "4", "python", "train.py")
    assert made.files == {"hostfile": "127.0.0.1 slots=4\n"}
    assert only.env["PRTE_MCA_prte_default_hostfile"] == only.env["OMPI_MCA_orte_default_hostfile"] == "/job/attempt/hostfile"
    assert only.env["FAIRWAY_WORLD_SIZE"] == "4"


def test_mpirun_of_the_user_stays_as_it_is(launch):
    roles = {"worker": {"command": ("mpirun", "-n", "{{world_size}}", "./a.out")}}
    made = launch({"worker": 1}, members={"worker": {"slots": 3}}, framework="mpi", roles=roles)["worker-0"]
    assert made.processes[0].argv == ("mpirun", "-n", "3", "./a.out")


def test_a_script_of_workers_goes_behind_mpiexec_as_a_whole(launch):
    roles = {"worker": {"command": (), "script": "python a.py\n"}}
    made = launch({"worker": 1}, members={"worker": {"slots": 2}}, framework="mpi", roles=roles)["worker-0"]
    assert made.processes[0].argv == ("mpiexec", "-n", "2", "bash", "-eu", "/job/attempt/script.sh")
    assert set(made.files) == {"hostfile", "script.sh"}


def test_a_launcher_uses_the_workers_slots(launch):
    roles = {"launcher": {"command": ("mpirun", "python", "train.py")}, "worker": {"command": ("sleep", "infinity")}}
    launches = launch(
        {"launcher": 1, "worker": 2}, members={"worker": {"slots": 2, "processes": 2}}, framework="mpi", roles=roles
    )
    assert launches["launcher-0"].files == {"hostfile": "127.0.0.1 slots=4\n"}
    assert launches["launcher-0"].processes[0].argv == ("mpirun", "python", "train.py")
    assert launches["launcher-0"].processes[0].env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert launches["worker-0"].files == {}
    assert {process.argv for process in launches["worker-0"].processes} == {("sleep", "infinity")}


def test_mpi_gets_room_root_and_loopback_and_the_users_settings_stay(launch):
    only = launch({"worker": 1}, framework="mpi", env={"OMPI_MCA_btl_tcp_if_include": "eth0"})["worker-0"].processes[0]
    assert only.env["PRTE_MCA_rmaps_default_mapping_policy"] == "slot:oversubscribe"
    assert only.env["OMPI_MCA_oob_tcp_if_include"] == "127.0.0.0/8"
    assert only.env["OMPI_MCA_btl_tcp_if_include"] == "eth0"
    assert "PRTE_ALLOW_RUN_AS_ROOT" in only.gives_way


def test_on_several_machines_the_first_worker_reaches_the_others_by_the_agent(launch):
    members = {"worker": {"host": "pod-{index}", "slots": 2}}
    launches = launch({"worker": 3}, members=members, framework="mpi", folders={"agent": "agent --now"})
    first, *others = [launches[f"worker-{index}"] for index in range(3)]
    (only,) = first.processes
    assert only.argv == ("mpiexec", "-n", "6", "python", "train.py")
    assert only.env["OMPI_MCA_plm_rsh_agent"] == only.env["PRTE_MCA_plm_ssh_agent"] == "agent --now"
    assert "OMPI_MCA_btl_tcp_if_include" not in only.env
    assert first.files["hostfile"].count("slots=2") == 3
    for other in others:
        assert [process.argv for process in other.processes] == [()], "there for what the first starts"
        assert other.files == {}
        assert "PRTE_MCA_plm_ssh_agent" not in other.processes[0].env


def test_on_one_machine_nobody_needs_an_agent(launch):
    only = launch({"worker": 1}, members={"worker": {"slots": 4}}, framework="mpi")["worker-0"].processes[0]
    assert not [name for name in only.env if "plm" in name or "REMOTE" in name]
