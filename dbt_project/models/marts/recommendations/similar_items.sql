{{ config(unique_key=['item_id', 'similar_item_id']) }}

with neighbours as (

    select * from {{ ref('int_item_neighbours') }}

),

final as (

    select
        item_id,
        rank,
        other_item_id as similar_item_id,
        count_invoices,
        count_shared_traits,
        case when count_invoices > 0 then 'bought together' else 'alike' end as reason
    from neighbours
    where rank <= {{ var('similar_items') }}

)

select * from final
