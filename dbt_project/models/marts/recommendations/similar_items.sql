with orders as (

    select distinct
        invoice_id,
        item_id
    from {{ ref('stg_orders') }}

),

items as (

    select * from {{ ref('stg_items') }}

),

bought_together as (

    select
        one.item_id,
        other.item_id as similar_item_id,
        count(*) as count_invoices
    from orders as one
    inner join orders as other
        on
            one.invoice_id = other.invoice_id
            and one.item_id != other.item_id
    group by one.item_id, other.item_id

),

alike as (

    select
        one.item_id,
        other.item_id as similar_item_id,
        1
        + cast(one.modifier = other.modifier as int)
        + cast(one.adjective = other.adjective as int) as count_shared_traits
    from items as one
    inner join items as other
        on
            one.category = other.category
            and one.item_id != other.item_id

),

-- A full join of both would say the same, but sorts half a million pairs.
candidates as (

    select
        alike.item_id,
        alike.similar_item_id,
        coalesce(bought_together.count_invoices, 0) as count_invoices,
        alike.count_shared_traits
    from alike
    left join bought_together
        on
            alike.item_id = bought_together.item_id
            and alike.similar_item_id = bought_together.similar_item_id

    union all

    -- Only what can be shown and bought: items that the changelog knows.
    select
        bought_together.item_id,
        bought_together.similar_item_id,
        bought_together.count_invoices,
        0 as count_shared_traits
    from bought_together
    inner join items as one on bought_together.item_id = one.item_id
    inner join items as other on bought_together.similar_item_id = other.item_id
    where one.category != other.category

),

ranked as (

    select
        candidates.*,
        row_number() over (
            partition by candidates.item_id
            order by
                candidates.count_invoices desc,
                candidates.count_shared_traits desc,
                candidates.similar_item_id asc
        ) as rank
    from candidates

),

final as (

    select
        item_id,
        rank,
        similar_item_id,
        cast(count_invoices as bigint) as count_invoices,
        count_shared_traits,
        case when count_invoices > 0 then 'bought together' else 'alike' end as reason
    from ranked
    where rank <= {{ var('similar_items') }}

)

select * from final
