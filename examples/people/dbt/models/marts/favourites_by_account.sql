{{ config(unique_key='account_id') }}

select
    people.account_id,
    count(*) as count_people,
    count(distinct favourites.colour) as count_colours,
    count(favourites.cheese) as count_with_cheese
from {{ source('silver', 'people_state') }} as people
inner join {{ source('silver', 'favourites') }} as favourites
    on people.id = favourites.id
where not people.is_deleted
group by people.account_id
