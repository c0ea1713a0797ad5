//! A data job with phases: what is good in one of them is bad in the next.
//!
//! Twice over: text is parsed into many small objects; columns are built of them, which grow by
//! appending until they are large; a join and an aggregation keep groups in a hash map and a tree, of
//! which each grows by small steps; most is freed, and large buffers are sorted and written out. The
//! groups of the first time are still there in the second.

use crate::checksum::Checksum;
use crate::random::Random;
use arrow_buffer::MutableBuffer;
use std::collections::{BTreeMap, HashMap, hash_map::DefaultHasher};
use std::fmt::Write;
use std::hash::BuildHasherDefault;

const CYCLES: u64 = 2;
/// Records per customer, on average.
const PER_CUSTOMER: u64 = 40;
/// Bytes of a note, at most: what makes the columns large.
const NOTE_MAX: u64 = 160;

type Customers = HashMap<u64, Box<Customer>, BuildHasherDefault<DefaultHasher>>;

/// A line as it was parsed.
struct Record {
    customer: u64,
    amount: i64,
    city: Box<str>,
    tags: Vec<String>,
    note: String,
}

/// What the join is done with.
#[derive(Default)]
struct Customer {
    rows: Vec<u32>,
    total: i64,
    city: String,
}

/// Columns as Arrow has them: numbers, and text as bytes and offsets.
struct Columns {
    customers: MutableBuffer,
    amounts: MutableBuffer,
    notes: MutableBuffer,
    offsets: MutableBuffer,
    tags: Vec<u8>,
}

/// Does it with so many records each time.
pub fn run(count: usize) -> Result<u64, String> {
    let mut sum = Checksum::new();
    let mut customers = Customers::default();
    let mut cities: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for cycle in 0..CYCLES {
        let records = load(count, cycle)?;
        let columns = build(&records);
        aggregate(&records, &mut customers, &mut cities);
        drop(records);
        sum.add_bytes(&write_out(&columns, &customers)?);
        drop(columns);
        // The next time begins with most of the rows of the customers gone.
        customers.retain(|id, _| id % 4 != cycle);
    }
    for (city, amounts) in &cities {
        sum.add_bytes(city.as_bytes());
        amounts.iter().for_each(|amount| sum.add(*amount as u64));
    }
    Ok(sum.value())
}

/// Text, line by line, into records.
fn load(count: usize, cycle: u64) -> Result<Vec<Record>, String> {
    let mut random = Random::new(cycle + 1);
    let customers = (count as u64 / PER_CUSTOMER).max(1);
    let mut line = String::new();
    let mut records = Vec::new();
    for _ in 0..count {
        line.clear();
        let (customer, amount) =
            (random.below(customers), random.below(2_000_000) as i64 - 900_000);
        let failed = |_| "a line could not be written".to_string();
        write!(line, "{customer};{amount};city-{};", random.below(997)).map_err(failed)?;
        for tag in 0..random.below(4) {
            write!(line, "{}t{}", if tag > 0 { "," } else { "" }, random.below(100_000))
                .map_err(failed)?;
        }
        line.push(';');
        let letters = random.below(NOTE_MAX);
        line.extend((0..letters).map(|at| char::from(b'a' + ((customer + at) % 26) as u8)));
        records.push(parse(&line)?);
    }
    Ok(records)
}

fn parse(line: &str) -> Result<Record, String> {
    let mut fields = line.split(';');
    let mut field = || fields.next().ok_or_else(|| format!("a field is missing: '{line}'"));
    let number = |text: &str| text.parse::<i64>().map_err(|why| format!("'{text}': {why}"));
    Ok(Record {
        customer: number(field()?)? as u64,
        amount: number(field()?)?,
        city: field()?.into(),
        tags: field()?.split(',').filter(|tag| !tag.is_empty()).map(str::to_string).collect(),
        note: field()?.to_string(),
    })
}

/// All columns grow side by side, a value at a time.
fn build(records: &[Record]) -> Columns {
    let empty = || MutableBuffer::new(0);
    let mut columns = Columns {
        customers: empty(),
        amounts: empty(),
        notes: empty(),
        offsets: empty(),
        tags: Vec::new(),
    };
    for record in records {
        columns.customers.push(record.customer);
        columns.amounts.push(record.amount);
        columns.offsets.push(columns.notes.len() as u64);
        columns.notes.extend_from_slice(record.note.as_bytes());
        for tag in &record.tags {
            columns.tags.extend_from_slice(tag.as_bytes());
            columns.tags.push(b'\n');
        }
    }
    columns
}

/// Small nodes, and rows that grow by one.
fn aggregate(
    records: &[Record],
    customers: &mut Customers,
    cities: &mut BTreeMap<String, Vec<i64>>,
) {
    for (row, record) in records.iter().enumerate() {
        let customer = customers.entry(record.customer).or_default();
        customer.rows.push(row as u32);
        customer.total += record.amount;
        if customer.city.is_empty() {
            customer.city.push_str(&record.city);
        }
        match cities.get_mut(&*record.city) {
            Some(amounts) => amounts.push(record.amount),
            None => _ = cities.insert(record.city.to_string(), vec![record.amount]),
        }
    }
}

/// The rows by amount, each with its note and its customer's total, as text.
fn write_out(columns: &Columns, customers: &Customers) -> Result<Vec<u8>, String> {
    let amounts: &[i64] = columns.amounts.typed_data();
    let ids: &[u64] = columns.customers.typed_data();
    let offsets: &[u64] = columns.offsets.typed_data();
    let mut order: Vec<(i64, u32)> =
        amounts.iter().enumerate().map(|(row, amount)| (*amount, row as u32)).collect();
    order.sort_unstable();
    let mut out = Vec::new();
    for (amount, row) in order {
        let row = row as usize;
        let end = offsets.get(row + 1).map_or(columns.notes.len(), |next| *next as usize);
        let customer = customers.get(&ids[row]).ok_or("a customer is missing")?;
        out.extend_from_slice(&amount.to_le_bytes());
        out.extend_from_slice(&customer.total.to_le_bytes());
        out.extend_from_slice(customer.city.as_bytes());
        out.extend_from_slice(&columns.notes.as_slice()[offsets[row] as usize..end]);
    }
    out.extend_from_slice(&(customers.values().map(|c| c.rows.len()).sum::<usize>()).to_le_bytes());
    out.extend_from_slice(&columns.tags);
    Ok(out)
}
