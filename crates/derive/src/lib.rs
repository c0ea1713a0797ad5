//! Derives for types that lie in a recoverable heap:
//! - `#[derive(Trace)]` names the pointers of a structure, field by field, for recovery,
//! - `#[derive(Key)]` makes a structure a key of hash tables and sets,
//! - `#[derive(Enumeration)]` numbers the values of an enumeration: the heap stores the numbers.

use proc_macro::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Error, Fields, Index, Meta, Token, parse_macro_input, parse_quote};

/// Implements `Trace` for a structure whose fields have it.
///
/// The structure is `#[repr(C)]` or `#[repr(transparent)]`: the next program must find each field where this one has stored it, and the
/// compiler may lay out other structures differently each time.
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
/// Any bytes must be a value of each field. So a flag is a `Checked<bool>` in a heap, and an enumeration `E` that derives `Enumeration` is
/// a `Checked<E>`.
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
    expand_trace(input).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `Key` for a structure whose fields have it: hash tables and sets in a heap take it as a key. The structure also derives
/// `Clone`, `Copy`, `PartialEq`, `Eq` and `Trace`.
///
/// ```
/// # use spandrel_derive::{Key, Trace};
/// # use spandrel_pheap as heap;
/// use heap::collections::{Key, Str};
/// use heap::Trace; // spandrel::heap
///
/// #[derive(Clone, Copy, PartialEq, Eq, Trace, Key)]
/// #[repr(C)]
/// struct Place {
///     country: Str<8>,
///     number: u32,
/// }
/// let places = [5, 6].map(|number| Place { country: Str::cut("Norge"), number });
/// assert_ne!(places[0].code(), places[1].code());
/// ```
#[proc_macro_derive(Key)]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand_key(input).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `Enumeration` for an enumeration without fields that names the type of its numbers (`#[repr(u8)]`, `u16`, `u32` or `u64`): a
/// `Checked` of it lies in a heap.
///
/// ```
/// # use spandrel_derive::Enumeration;
/// # use spandrel_pheap as heap;
/// use heap::{Checked, Enumeration}; // spandrel::heap
///
/// #[derive(Clone, Copy, PartialEq, Debug, Enumeration)]
/// #[repr(u8)]
/// enum Colour {
///     Red = 1,
///     Green,
/// }
/// assert_eq!(Colour::of_number(2), Some(Colour::Green));
/// assert_eq!(Colour::of_number(3), None);
/// assert_eq!(Checked::new(Colour::Red).get(), Some(Colour::Red));
/// ```
#[proc_macro_derive(Enumeration)]
pub fn derive_enumeration(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand_enumeration(input).unwrap_or_else(Error::into_compile_error).into()
}

/// The names of the fields, or their numbers.
fn places(fields: &Fields) -> Vec<proc_macro2::TokenStream> {
    match fields {
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
    }
}

fn expand_trace(input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        let why = format!(
            "only structures have `Trace` derived: of an enumeration or a union not all bytes are a value. \
             Derive `Enumeration` with `#[repr(u8)]` for an enumeration without fields, and let a field be a `Checked<{name}>`; \
             for one with fields write a structure with such a number and the fields of all"
        );
        return Err(Error::new_spanned(name, why));
    };
    if !has_repr(&input, &["C", "transparent"]) {
        let why = "a structure in a heap is `#[repr(C)]`: else the next version of the compiler may lay it out differently";
        return Err(Error::new_spanned(name, why));
    }
    for field in &data.fields {
        if let Some(why) = hint(&field.ty) {
            return Err(Error::new_spanned(&field.ty, why));
        }
    }
    let root = heap_crate();
    let places = places(&data.fields);
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
            const HAS_PADDING: bool = (::core::mem::size_of::<Self>() > 0 #(+ ::core::mem::size_of::<#types>())*)
                #(|| <#types as #root::Trace>::HAS_PADDING)*;

            fn trace(&self, tracer: &mut #root::Tracer<'_>) {
                #( #root::Trace::trace(&self.#places, tracer); )*
            }

            unsafe fn clear_padding(at: *mut Self) {
                if !<Self as #root::Trace>::HAS_PADDING {
                    return;
                }
                let at = at.cast::<u8>();
                let end = 0;
                // SAFETY: the fields lie one behind the other within the value.
                unsafe {
                    #(
                        let from = ::core::mem::offset_of!(Self, #places);
                        #root::trace::clear(at, end, from);
                        <#types as #root::Trace>::clear_padding(at.add(from).cast());
                        let end = from + ::core::mem::size_of::<#types>();
                    )*
                    #root::trace::clear(at, end, ::core::mem::size_of::<Self>());
                }
            }
        }
    })
}

/// What the type of a field is in a heap, for the types of the standard library that programs try first.
fn hint(field: &syn::Type) -> Option<&'static str> {
    let syn::Type::Path(path) = field else { return None };
    match path.path.segments.last()?.ident.to_string().as_str() {
        "bool" => Some("not all bytes are a `bool`: let it be a `Checked<bool>`"),
        "char" => Some("not all bytes are a `char`: let it be a `Checked<char>`"),
        "Option" => Some(
            "not all bytes are an `Option`: a `PPtr` can be null, and beside a number lies a `Checked<bool>`",
        ),
        "String" => Some(
            "what a `String` leads to does not lie in the heap: let it be a `Str<N>` of up to N bytes, or a `PPtr<VectorHead<u8>>`",
        ),
        _ => None,
    }
}

fn expand_key(input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        let why = format!(
            "only structures have `Key` derived; of an enumeration that derives `Enumeration` a `Checked<{name}>` is a key"
        );
        return Err(Error::new_spanned(name, why));
    };
    let root = heap_crate();
    let places = places(&data.fields);
    let mut generics = input.generics.clone();
    for parameter in input.generics.type_params() {
        let parameter = &parameter.ident;
        generics
            .make_where_clause()
            .predicates
            .push(parse_quote!(#parameter: #root::collections::Key));
    }
    let (with, named, where_) = generics.split_for_impl();
    Ok(quote! {
        impl #with #root::collections::Key for #name #named #where_ {
            fn code(&self) -> u64 {
                let code = 5u64;
                #( let code = #root::trace::mix(code, #root::collections::Key::code(&self.#places)); )*
                code
            }
        }
    })
}

fn expand_enumeration(input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let name = &input.ident;
    let Data::Enum(data) = &input.data else {
        let why = "only enumerations have `Enumeration` derived; a structure derives `Trace`";
        return Err(Error::new_spanned(name, why));
    };
    if let Some(variant) = data.variants.iter().find(|variant| !variant.fields.is_empty()) {
        let why = "an enumeration in a heap has no fields: write a structure with a number and the fields of all";
        return Err(Error::new_spanned(variant, why));
    }
    let number = ["u8", "u16", "u32", "u64"].into_iter().find(|number| has_repr(&input, &[number]));
    let Some(number) = number else {
        let why = "an enumeration in a heap says of what type its numbers are, as by `#[repr(u8)]`: u8, u16, u32 or u64";
        return Err(Error::new_spanned(name, why));
    };
    let number = syn::Ident::new(number, name.span());
    let root = heap_crate();
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let texts: Vec<_> = variants.iter().map(ToString::to_string).collect();
    let (with, named, where_) = input.generics.split_for_impl();
    let text = name.to_string();
    Ok(quote! {
        impl #with #root::Enumeration for #name #named #where_ {
            type Number = #number;
            const LAYOUT: u64 = {
                let layout = #root::trace::hash(#text, 0);
                #( let layout = #root::trace::mix(layout, #root::trace::hash(#texts, Self::#variants as u64)); )*
                layout
            };

            fn number(self) -> #number {
                self as #number
            }

            fn of_number(number: #number) -> ::core::option::Option<Self> {
                #(
                    if number == Self::#variants as #number {
                        return ::core::option::Option::Some(Self::#variants);
                    }
                )*
                ::core::option::Option::None
            }
        }
    })
}

/// The path of the heap's crate in the program that derives.
fn heap_crate() -> proc_macro2::TokenStream {
    let own = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    match own.as_str() {
        "spandrel-pheap" | "spandrel-derive" => quote!(::spandrel_pheap),
        _ => quote!(::spandrel::heap),
    }
}

/// Whether a type has one of these representations.
fn has_repr(input: &DeriveInput, named: &[&str]) -> bool {
    input.attrs.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        // As a list: of `align(16)` the parentheses are a part, and do not end it.
        let all = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        let is_one = |meta: &Meta| named.iter().any(|name| meta.path().is_ident(name));
        list.path.is_ident("repr") && all.is_ok_and(|all| all.iter().any(is_one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_representation_is_found_among_others_in_any_order() {
        let has = |input: &DeriveInput| has_repr(input, &["C", "transparent"]);
        assert!(has(&parse_quote!(
            #[repr(align(16), C)]
            struct One {
                two: u64,
            }
        )));
        assert!(has(&parse_quote!(
            #[repr(C, packed(2))]
            struct One {
                two: u64,
            }
        )));
        assert!(has(&parse_quote!(
            #[repr(align(16))]
            #[repr(C)]
            struct One {
                two: u64,
            }
        )));
        assert!(!has(&parse_quote!(
            #[repr(align(16))]
            struct One {
                two: u64,
            }
        )));
        assert!(!has(&parse_quote!(
            #[repr(packed, Rust)]
            #[doc(C)]
            struct One {
                two: u64,
            }
        )));
        let input = parse_quote!(
            #[repr(align(8), u16)]
            enum One {
                Two,
            }
        );
        assert!(has_repr(&input, &["u16"]) && !has_repr(&input, &["u8"]));
        expand_trace(parse_quote!(
            #[repr(align(16), C)]
            struct One {
                two: u64,
            }
        ))
        .unwrap();
        expand_enumeration(input).unwrap();
    }
}
