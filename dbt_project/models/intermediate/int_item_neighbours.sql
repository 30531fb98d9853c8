{{ config(unique_key=['item_id', 'other_item_id']) }}
-- depends_on: {{ ref('int_item_pairs') }}

with all_items as (

    select * from {{ ref('stg_items') }}

),

{% if is_incremental() %}
    changed_items as (

        {{ changed_keys(ref('stg_items'), ['item_id', 'category']) }}

    ),

    items_of_changed_categories as (

        select all_items.item_id from all_items
        left semi join changed_items on all_items.category = changed_items.category

    ),

    items_bought_with_changed_ones as (

        select pairs.item_id from {{ ref('int_item_pairs') }} as pairs
        left semi join changed_items on pairs.other_item_id = changed_items.item_id

    ),

    affected as (

        {{ changed_keys(ref('int_item_pairs'), ['item_id']) }}
        union
        select item_id from changed_items
        union
        select item_id from items_of_changed_categories
        union
        select item_id from items_bought_with_changed_ones

    ),
{% endif %}

items as (

    {{ rows_of(ref('stg_items'), 'affected', ['item_id']) }}

),

affinity as (

    {{ rows_of(ref('item_affinity'), 'affected', ['item_id']) }}

),

alike as (

    select
        one.item_id,
        other.item_id as other_item_id,
        1
        + cast(one.modifier <=> other.modifier as int)
        + cast(one.adjective <=> other.adjective as int) as count_shared_traits
    from items as one
    inner join all_items as other
        on
            one.category = other.category
            and one.item_id != other.item_id

),

-- A full join would give the same result, but would sort half a million pairs.
candidates as (

    select
        alike.item_id,
        alike.other_item_id,
        coalesce(affinity.count_invoices, 0) as count_invoices,
        coalesce(affinity.confidence, 0) as confidence,
        alike.count_shared_traits
    from alike
    left join affinity
        on
            alike.item_id = affinity.item_id
            and alike.other_item_id = affinity.other_item_id

    union all

    select
        affinity.item_id,
        affinity.other_item_id,
        affinity.count_invoices,
        affinity.confidence,
        0 as count_shared_traits
    from affinity
    inner join items as one on affinity.item_id = one.item_id
    inner join all_items as other on affinity.other_item_id = other.item_id
    where coalesce(one.category != other.category, true)

),

ranked as (

    select
        *,
        row_number() over (
            partition by item_id
            order by
                count_invoices desc,
                count_shared_traits desc,
                other_item_id asc
        ) as rank
    from candidates

),

final as (

    select
        item_id,
        rank,
        other_item_id,
        count_invoices,
        confidence,
        count_shared_traits
    from ranked
    where rank <= {{ var('neighbours_per_item') }}

)

{{ replacing('final', 'affected', ['item_id']) }}
