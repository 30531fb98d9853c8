{{ config(unique_key=['item_id', 'other_item_id']) }}

with items as (

    select * from {{ ref('stg_items') }}

),

affinity as (

    select * from {{ ref('item_affinity') }}

),

alike as (

    select
        one.item_id,
        other.item_id as other_item_id,
        1
        + cast(one.modifier <=> other.modifier as int)
        + cast(one.adjective <=> other.adjective as int) as count_shared_traits
    from items as one
    inner join items as other
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
    inner join items as other on affinity.other_item_id = other.item_id
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

select * from final
