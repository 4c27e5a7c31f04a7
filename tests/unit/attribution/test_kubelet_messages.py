"""The kubelet's messages against the protobuf library, which made them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.agent.attribution.kubelet.allocations import ClaimDevice
from gpuscale.agent.attribution.kubelet.messages import (
    ContainerResources,
    DeviceGroup,
    allocatable_groups,
    listed_containers,
)
from gpuscale.agent.attribution.proto import podresources_pb2 as pb

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
numbers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)
topologies = st.builds(
    pb.TopologyInfo, nodes=st.lists(st.builds(pb.NUMANode, ID=st.integers(-1, 300)), max_size=2)
)
groups = st.builds(
    pb.ContainerDevices,
    resource_name=texts,
    device_ids=st.lists(texts, max_size=3),
    topology=topologies,
)
memory = st.builds(
    pb.ContainerMemory, memory_type=texts, size=st.integers(0, 2**64 - 1), topology=topologies
)
claims = st.builds(
    pb.DynamicResource,
    claim_name=texts,
    claim_namespace=texts,
    claim_resources=st.lists(
        st.builds(
            pb.ClaimResource,
            cdi_devices=st.lists(st.builds(pb.CDIDevice, name=texts), max_size=2),
            driver_name=texts,
            pool_name=texts,
            device_name=texts,
            share_id=texts,
        ),
        max_size=2,
    ),
)
pods = st.builds(
    pb.PodResources,
    name=texts,
    namespace=texts,
    cpu_ids=numbers,
    memory=st.lists(memory, max_size=1),
    containers=st.lists(
        st.builds(
            pb.ContainerResources,
            name=texts,
            devices=st.lists(groups, max_size=2),
            cpu_ids=numbers,
            memory=st.lists(memory, max_size=1),
            dynamic_resources=st.lists(claims, max_size=2),
        ),
        max_size=2,
    ),
)
lists = st.builds(pb.ListPodResourcesResponse, pod_resources=st.lists(pods, max_size=2))


def groups_of(found):
    return tuple(DeviceGroup(each.resource_name, tuple(each.device_ids)) for each in found)


def containers_of(answer):
    return [
        ContainerResources(
            pod.namespace,
            pod.name,
            container.name,
            groups_of(container.devices),
            tuple(
                ClaimDevice(
                    each.driver_name,
                    each.pool_name,
                    each.device_name,
                    tuple(cdi.name for cdi in each.cdi_devices),
                    claim.claim_name,
                    claim.claim_namespace,
                )
                for claim in container.dynamic_resources
                for each in claim.claim_resources
            ),
        )
        for pod in answer.pod_resources
        for container in pod.containers
    ]


@given(lists)
def test_a_list_is_what_the_library_wrote(answer) -> None:
    assert list(listed_containers(answer.SerializeToString())) == containers_of(answer)


@given(st.lists(groups, max_size=3), numbers)
def test_allocatable_devices_are_what_the_library_wrote(found, cpus) -> None:
    answer = pb.AllocatableResourcesResponse(devices=found, cpu_ids=cpus)
    assert allocatable_groups(answer.SerializeToString()) == groups_of(found)


@given(
    st.one_of(st.binary(max_size=60), lists.map(lambda each: each.SerializeToString())), st.data()
)
def test_damaged_bytes_are_refused_or_read_as_the_library_reads_them(message, data) -> None:
    cut = message[: data.draw(st.integers(0, len(message)))]
    try:
        found = list(listed_containers(cut))
    except ValueError:
        return
    # What the library refuses besides is in fields that are passed over here.
    try:
        answer = pb.ListPodResourcesResponse.FromString(cut)
    except Exception:  # noqa: BLE001 - its errors have no common home over its releases
        return
    assert found == containers_of(answer)


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a\x05ab",  # a length of 5, and two bytes
        b"\x0a",  # a tag, and no length
        b"\x0a" + b"\xff" * 10 + b"\x01",  # a length of more than ten bytes
        b"\x02\x00",  # field 0
        b"\x0b",  # a group, which proto3 does not have
        b"\x0a\x04\x0a\x02\xc3\x28",  # a name that is not UTF-8
        b"\x11\x00",  # eight bytes, of which one is there
    ],
)
def test_what_is_no_message_is_refused(message) -> None:
    with pytest.raises(ValueError, match=r"field|number|codec"):
        list(listed_containers(message))
