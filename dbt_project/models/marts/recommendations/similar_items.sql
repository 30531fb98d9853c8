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

candidates as (

    select
        coalesce(bought_together.item_id, alike.item_id) as item_id,
        coalesce(bought_together.similar_item_id, alike.similar_item_id) as similar_item_id,
        coalesce(bought_together.count_invoices, 0) as count_invoices,
        coalesce(alike.count_shared_traits, 0) as count_shared_traits
    from bought_together
    full outer join alike
        on
            bought_together.item_id = alike.item_id
            and bought_together.similar_item_id = alike.similar_item_id

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
    -- Only what can be shown and bought: items that the changelog knows.
    left semi join items on candidates.item_id = items.item_id
    left semi join items as similar on candidates.similar_item_id = similar.item_id

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
