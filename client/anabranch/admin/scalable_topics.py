"""Scalable topics, their subscriptions and segments: PIP-468's client interface, and our own."""

from __future__ import annotations

from anabranch.admin import segment_calls, subscription_calls, topic_calls
from anabranch.admin.calls import Async, AsyncGroup, Group, Sync


class ScalableTopics(Group):
    """Operations on scalable topics."""

    list_scalable_topics = Sync(topic_calls.list_scalable_topics)
    create_scalable_topic = Sync(topic_calls.create_scalable_topic)
    get_metadata = Sync(topic_calls.get_metadata)
    get_stats = Sync(topic_calls.get_stats)
    get_segment_stats = Sync(topic_calls.get_segment_stats)
    delete_scalable_topic = Sync(topic_calls.delete_scalable_topic)
    create_subscription = Sync(subscription_calls.create_subscription)
    delete_subscription = Sync(subscription_calls.delete_subscription)
    seek_subscription = Sync(subscription_calls.seek_subscription)
    skip_all = Sync(subscription_calls.skip_all)
    get_dead_letter_policy = Sync(subscription_calls.get_dead_letter_policy)
    set_dead_letter_policy = Sync(subscription_calls.set_dead_letter_policy)
    remove_dead_letter_policy = Sync(subscription_calls.remove_dead_letter_policy)
    split_segment = Sync(topic_calls.split_segment)
    merge_segments = Sync(topic_calls.merge_segments)
    rebucket_segment = Sync(topic_calls.rebucket_segment)
    get_properties = Sync(topic_calls.get_properties)
    update_properties = Sync(topic_calls.update_properties)
    remove_property = Sync(topic_calls.remove_property)
    get_auto_scale_policy = Sync(topic_calls.get_auto_scale_policy)
    set_auto_scale_policy = Sync(topic_calls.set_auto_scale_policy)
    remove_auto_scale_policy = Sync(topic_calls.remove_auto_scale_policy)
    create_segment = Sync(segment_calls.create_segment)
    terminate_segment = Sync(segment_calls.terminate_segment)
    delete_segment = Sync(segment_calls.delete_segment)
    create_segment_subscription = Sync(segment_calls.create_segment_subscription)
    delete_segment_subscription = Sync(segment_calls.delete_segment_subscription)
    get_segment_backlog = Sync(segment_calls.get_segment_backlog)
    seek_segment_subscription = Sync(segment_calls.seek_segment_subscription)
    skip_all_of_segment = Sync(segment_calls.skip_all_of_segment)


class AsyncScalableTopics(AsyncGroup):
    """Operations on scalable topics, as coroutines."""

    list_scalable_topics = Async(topic_calls.list_scalable_topics)
    create_scalable_topic = Async(topic_calls.create_scalable_topic)
    get_metadata = Async(topic_calls.get_metadata)
    get_stats = Async(topic_calls.get_stats)
    get_segment_stats = Async(topic_calls.get_segment_stats)
    delete_scalable_topic = Async(topic_calls.delete_scalable_topic)
    create_subscription = Async(subscription_calls.create_subscription)
    delete_subscription = Async(subscription_calls.delete_subscription)
    seek_subscription = Async(subscription_calls.seek_subscription)
    skip_all = Async(subscription_calls.skip_all)
    get_dead_letter_policy = Async(subscription_calls.get_dead_letter_policy)
    set_dead_letter_policy = Async(subscription_calls.set_dead_letter_policy)
    remove_dead_letter_policy = Async(subscription_calls.remove_dead_letter_policy)
    split_segment = Async(topic_calls.split_segment)
    merge_segments = Async(topic_calls.merge_segments)
    rebucket_segment = Async(topic_calls.rebucket_segment)
    get_properties = Async(topic_calls.get_properties)
    update_properties = Async(topic_calls.update_properties)
    remove_property = Async(topic_calls.remove_property)
    get_auto_scale_policy = Async(topic_calls.get_auto_scale_policy)
    set_auto_scale_policy = Async(topic_calls.set_auto_scale_policy)
    remove_auto_scale_policy = Async(topic_calls.remove_auto_scale_policy)
    create_segment = Async(segment_calls.create_segment)
    terminate_segment = Async(segment_calls.terminate_segment)
    delete_segment = Async(segment_calls.delete_segment)
    create_segment_subscription = Async(segment_calls.create_segment_subscription)
    delete_segment_subscription = Async(segment_calls.delete_segment_subscription)
    get_segment_backlog = Async(segment_calls.get_segment_backlog)
    seek_segment_subscription = Async(segment_calls.seek_segment_subscription)
    skip_all_of_segment = Async(segment_calls.skip_all_of_segment)
