//! `#[derive(Trace)]`: a structure says where its pointers are, field by field.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Index, Meta, parse_macro_input, parse_quote};

/// Writes `Trace` for a structure of types that have it.
///
/// The structure is `#[repr(C)]` or `#[repr(transparent)]`: what was stored by one program must lie where the next one looks for it, and of other
/// structures the compiler chooses the places anew each time.
///
/// ```
/// # use spandrel_derive::Trace;
/// # use spandrel_pheap as heap;
/// use heap::{PPtr, Trace}; // spandrel::heap
///
/// #[derive(Trace)]
/// #[repr(C)]
/// struct Node {
///     next: PPtr<Node>,
///     count: u64,
/// }
/// assert!(Node::HAS_POINTERS);
/// ```
///
/// What any bytes are not a value of does not lie in a heap:
///
/// ```compile_fail
/// # use spandrel_derive::Trace;
/// # use spandrel_pheap::Trace;
/// #[derive(Trace)]
/// #[repr(C)]
/// struct Flag {
///     is_set: bool,
/// }
/// ```
#[proc_macro_derive(Trace)]
pub fn derive_trace(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        let why = "only structures have `Trace` derived: of an enumeration or a union not all bytes are a value; \
                   write a number, and a method that says what it means";
        return Err(Error::new_spanned(name, why));
    };
    if !has_fixed_layout(&input) {
        let why = "a structure in a heap is `#[repr(C)]`: else the next version of the compiler may lay it out differently";
        return Err(Error::new_spanned(name, why));
    }
    let root = heap_crate();
    let places: Vec<_> = match &data.fields {
        Fields::Named(fields) => fields
            .named
            .iter()
            .filter_map(|field| field.ident.clone())
            .map(|name| quote!(#name))
            .collect(),
        Fields::Unnamed(fields) => {
            (0..fields.unnamed.len()).map(Index::from).map(|at| quote!(#at)).collect()
        }
        Fields::Unit => Vec::new(),
    };
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let texts: Vec<_> = places.iter().map(ToString::to_string).collect();
    let mut generics = input.generics.clone();
    for parameter in input.generics.type_params() {
        let parameter = &parameter.ident;
        generics.make_where_clause().predicates.push(parse_quote!(#parameter: #root::Trace));
    }
    let (with, named, where_) = generics.split_for_impl();
    let text = name.to_string();
    Ok(quote! {
        // SAFETY: any bytes are a value of each field, and each names its pointers.
        unsafe impl #with #root::Trace for #name #named #where_ {
            const LAYOUT: u64 = {
                let layout = #root::trace::hash(#text, ::core::mem::size_of::<Self>() as u64);
                #(
                    let place = ::core::mem::offset_of!(Self, #places) as u64;
                    let field = #root::trace::mix(#root::trace::hash(#texts, place), <#types as #root::Trace>::LAYOUT);
                    let layout = #root::trace::mix(layout, field);
                )*
                layout
            };
            const HAS_POINTERS: bool = false #(|| <#types as #root::Trace>::HAS_POINTERS)*;

            fn trace(&self, tracer: &mut #root::Tracer<'_>) {
                #( #root::Trace::trace(&self.#places, tracer); )*
            }
        }
    })
}

/// What the user calls the crate of the heap.
fn heap_crate() -> proc_macro2::TokenStream {
    let own = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    match own.as_str() {
        "spandrel-pheap" | "spandrel-derive" => quote!(::spandrel_pheap),
        _ => quote!(::spandrel::heap),
    }
}

fn has_fixed_layout(input: &DeriveInput) -> bool {
    input.attrs.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let mut is_fixed = false;
        let _ = list.parse_nested_meta(|meta| {
            is_fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            Ok(())
        });
        list.path.is_ident("repr") && is_fixed
    })
}
